#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace shardline {

// What the JSON and tokenizer files beside a model say. Each file may be missing; one that is
// there but malformed is an Error naming the file and the place.
struct ModelFiles {
    std::string name;                  // empty when the files do not say
    std::string architecture;          // config.json's model_type; empty when absent
    std::uint32_t context_length = 0;  // tokens; 0 when the files do not say
    // Union of generation_config.json, config.json, tokenizer_config.json and the tokenizer
    // models' runtime info, ascending.
    std::vector<std::int64_t> eos_token_ids;
};

ModelFiles read_model_files(const std::filesystem::path& directory);

}  // namespace shardline
