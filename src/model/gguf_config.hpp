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
// `name` is what the model will be served as: the file's, since "general.name" is prose
// that nobody would type.
GgufConfig make_gguf_config(const std::string& name, const GgufHeader& header,
                            const ov::AnyMap& tokenizer);

}  // namespace shardline
