#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <openvino/core/any.hpp>
#include <openvino/core/model.hpp>
#include <string>
#include <vector>

namespace shardline {

// What a GGUF file says about text, as OpenVINO Tokenizers models: byte-level BPE ("gpt2") and
// SentencePiece ("llama"). Control and user-defined tokens become single ids; decoding leaves
// control tokens out and keeps user-defined ones (tool and thinking tags are part of the answer).
struct GgufTokenizerModels {
    std::shared_ptr<ov::Model> tokenizer;    // string[?] -> input_ids, attention_mask
    std::shared_ptr<ov::Model> detokenizer;  // i64[?, ?] -> string_output
    std::string chat_template;               // empty when the file has none
    std::string bos_token;                   // text; empty when there is none
    std::string eos_token;
    std::vector<std::int64_t> eos_token_ids;  // every id that ends an answer, ascending
};

// `metadata` is the map that OpenVINO's GGUF front end leaves on a converted model. Throws
// Error(kCorrupt) naming the key at fault, Error(kUnsupported) naming a tokenizer kind or
// pre-tokenizer we do not have.
GgufTokenizerModels build_gguf_tokenizer(const ov::AnyMap& metadata);

// Writes openvino_tokenizer.xml/.bin, openvino_detokenizer.xml/.bin, chat_template.jinja and
// tokenizer_config.json into an existing directory, as GenAI and Tokenizer::open read them.
void save_gguf_tokenizer(const GgufTokenizerModels& models, const std::filesystem::path& directory);

}  // namespace shardline
