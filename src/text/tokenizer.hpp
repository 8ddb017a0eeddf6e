#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

class Detokenizer;

// Text that a tokenizer reads as one id of its own: a control token ("<|im_end|>") or one the
// model's makers added ("<tool_call>").
struct Marker {
    std::int64_t id = 0;
    std::string text;
    bool is_control = false;
};

// Text to ids and back, by the OpenVINO Tokenizers models of a model directory. Thread-safe:
// encoding takes turns on one infer request, decoding runs in parallel.
class Tokenizer final {
public:
    // Throws Error naming the missing file and how to get it (`shardline import`).
    static Tokenizer open(const std::filesystem::path& model_directory);

    Tokenizer(Tokenizer&&) noexcept;
    ~Tokenizer();

    // As GenAI's tokenizer: control-token text becomes control ids; add_special_tokens puts in
    // front (and behind) what the model's tokenizer asks for. Unlike GenAI's, never cuts a long
    // text. Invalid UTF-8 is read as U+FFFD.
    std::vector<std::int64_t> encode(std::string_view text, bool add_special_tokens) const;

    // As encode() without special tokens, but no part of the text becomes a marker's id.
    std::vector<std::int64_t> encode_plain(std::string_view text) const;

    // Ids must be below vocab_size(); others stand for nothing. Invalid UTF-8 becomes U+FFFD.
    std::string decode(std::span<const std::int64_t> ids, bool skip_special_tokens = true) const;

    // Bytes that this one token stands for (`bytes` of OpenAI's logprobs); may be part of a
    // character.
    std::string token_bytes(std::int64_t id) const;

    std::uint32_t vocab_size() const;
    std::vector<std::int64_t> eos_token_ids() const;  // what the tokenizer's own files name
    std::string bos_token() const;                    // text; empty when there is none
    std::string eos_token() const;

    const std::vector<Marker>& markers() const;          // ascending ids
    const std::vector<std::int64_t>& front_ids() const;  // what add_special_tokens puts in front
    const Detokenizer& detokenizer() const;  // for text that grows by tokens; lives as long as this

private:
    struct State;
    explicit Tokenizer(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace shardline
