#pragma once

#include <array>
#include <filesystem>
#include <openvino/openvino.hpp>
#include <string>
#include <vector>

#include "text/gguf_tokenizer.hpp"
#include "text/tokenizer.hpp"

namespace shardline {

// A byte-level tokenizer small enough to see through: token b is byte b, then a few merges, then
// markers. Metadata as OpenVINO's GGUF front end leaves it.
class TinyTokenizer final {
public:
    TinyTokenizer();

    ov::AnyMap metadata() const;
    std::int64_t id(const std::string& token) const;  // of a merged token or a marker

    // `front_bos`: the tokenizer puts <|begin|> in front.
    static ov::AnyMap metadata_with(bool front_bos);

    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;
    std::vector<std::string> merges;

private:
    void add(const std::string& token, std::int32_t type);
};

// GPT-2's printable character for a byte.
std::string printable(unsigned char byte);

ov::Tensor numbers(const std::vector<std::int32_t>& values);
ov::Tensor number(std::uint32_t value);

// Builds, saves and opens; the folder goes away at the end.
class SavedTokenizer final {
public:
    explicit SavedTokenizer(const ov::AnyMap& metadata);
    ~SavedTokenizer();
    SavedTokenizer(const SavedTokenizer&) = delete;
    SavedTokenizer& operator=(const SavedTokenizer&) = delete;

    const std::filesystem::path& directory() const { return directory_; }
    Tokenizer open() const { return Tokenizer::open(directory_); }

private:
    std::filesystem::path directory_;
};

}  // namespace shardline
