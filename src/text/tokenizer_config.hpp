#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace shardline {

// What tokenizer_config.json of a model directory says; every field may be empty.
struct TokenizerConfig {
    std::string bos_token;
    std::string eos_token;
    std::vector<std::int64_t> eos_token_ids;  // written by `shardline import`
    std::string chat_template;                // the default one where the file names several
};

// An empty config when the file is not there. Throws Error(kCorrupt) when it is not JSON.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& model_directory);

}  // namespace shardline
