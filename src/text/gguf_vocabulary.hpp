#pragma once

#include <cstdint>
#include <openvino/core/any.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardline {

// `tokenizer.ggml.token_type` of a GGUF file.
enum class GgufTokenType : std::int32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
};

// The tokenizer part of a GGUF file's metadata, checked: every id is below tokens.size(), there
// are as many types (and scores, where the kind needs them) as tokens, merges come in two halves.
struct GgufVocabulary {
    std::string model;  // "gpt2" (byte-level BPE) or "llama" (SentencePiece with scores)
    std::string pre;    // the pre-tokenizer's name; "default" when the file has none
    std::vector<std::string> tokens;
    std::vector<GgufTokenType> token_types;
    std::vector<float> scores;                                // "llama" only
    std::vector<std::pair<std::string, std::string>> merges;  // "gpt2" only
    std::optional<std::int64_t> bos_id, eos_id, eot_id, eom_id, unknown_id, padding_id;
    std::optional<bool> add_bos, add_eos, add_space_prefix;  // as far as the file says
    std::string chat_template;                               // empty when there is none
};

// From the map that OpenVINO's GGUF front end leaves on a converted model. Throws
// Error(kCorrupt) naming the key that is missing or contradicts the rest.
GgufVocabulary read_gguf_vocabulary(const ov::AnyMap& metadata);

}  // namespace shardline
