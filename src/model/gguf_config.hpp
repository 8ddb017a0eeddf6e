#pragma once

#include <openvino/core/any.hpp>
#include <string>

#include "model/gguf_header.hpp"

namespace shardline {

// Throws Error(kUnsupported) naming the architecture, tensor type or split when the file is sound
// but OpenVINO's GGUF front end has nothing to make of it.
void require_importable(const GgufHeader& header);

struct GgufConfig {
    std::string config_json;
    std::string generation_config_json;
};

// What the files beside the model say, in the words of Hugging Face's config.json, from the
// GGUF's metadata; the ids that end an answer also from `tokenizer` (see TokenizerWriter).
GgufConfig make_gguf_config(const GgufHeader& header, const ov::AnyMap& tokenizer);

}  // namespace shardline
