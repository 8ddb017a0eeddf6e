#pragma once

#include <openvino/core/any.hpp>
#include <string>

#include "model/gguf_header.hpp"

namespace shardline {

struct GgufConfig {
    std::string config_json;
    std::string generation_config_json;
};

// What the files beside the model say, in the words of Hugging Face's config.json, from the
// GGUF's metadata; the ids that end an answer also from `tokenizer` (see TokenizerWriter).
GgufConfig make_gguf_config(const GgufHeader& header, const ov::AnyMap& tokenizer);

}  // namespace shardline
