#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardline {

// What is known of a model without compiling it. Filled by model/model_source from the graph and
// the JSON files beside it.
struct ModelInfo {
    std::string name;              // served name: the directory's or the GGUF's own
    std::string architecture;      // "llama", ...: for display only, never a switch
    std::uint32_t num_layers = 0;  // attention layers
    std::uint32_t hidden_size = 0;
    std::uint32_t vocab_size = 0;             // rows of the embedding; ids must be below it
    std::uint32_t context_length = 0;         // tokens; 0 when the files do not say
    std::vector<std::int64_t> eos_token_ids;  // union of all sources, ascending
    std::uint64_t weights_bytes = 0;
};

}  // namespace shardline
