#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

// Text to ids and back, by the OpenVINO Tokenizers models of a model directory. Thread-safe:
// calls take turns on one infer request.
class Tokenizer final {
public:
    // Throws Error naming the missing file and how to get it (`shardline import`).
    static Tokenizer open(const std::filesystem::path& model_directory);

    Tokenizer(Tokenizer&&) noexcept;
    ~Tokenizer();

    // As GenAI's tokenizer: control-token text becomes control ids; add_special_tokens puts in
    // front (and behind) what the model's tokenizer asks for.
    std::vector<std::int64_t> encode(std::string_view text, bool add_special_tokens) const;

    // Ids must be below vocab_size(). Invalid UTF-8 becomes U+FFFD.
    std::string decode(std::span<const std::int64_t> ids, bool skip_special_tokens = true) const;

    // Bytes that this one token stands for (`bytes` of OpenAI's logprobs); may be part of a
    // character.
    std::string token_bytes(std::int64_t id) const;

    std::uint32_t vocab_size() const;
    std::vector<std::int64_t> eos_token_ids() const;  // what the tokenizer's own files name
    std::string bos_token() const;                    // text; empty when there is none
    std::string eos_token() const;

private:
    struct State;
    explicit Tokenizer(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace shardline
