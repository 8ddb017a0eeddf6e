#include "unit/text/tiny_tokenizer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace shardline {

namespace {

std::string utf8(std::uint32_t character) {
    if (character < 0x80) {
        return {static_cast<char>(character)};
    }
    return {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 0x3F))};
}

std::string printable_text(const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) {
        text += printable(static_cast<unsigned char>(byte));
    }
    return text;
}

constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUserDefined = 4;
constexpr std::int32_t kUnused = 5;

}  // namespace

std::string printable(unsigned char byte) {
    std::uint32_t shifted = 256;
    for (std::uint32_t other = 0; other < 256; ++other) {
        const bool itself =
            (other >= 33 && other <= 126) || (other >= 161 && other <= 172) || other >= 174;
        if (other == byte) {
            return utf8(itself ? other : shifted);
        }
        shifted += itself ? 0 : 1;
    }
    return {};
}

ov::Tensor numbers(const std::vector<std::int32_t>& values) {
    ov::Tensor tensor(ov::element::i32, ov::Shape{values.size()});
    std::copy(values.begin(), values.end(), tensor.data<std::int32_t>());
    return tensor;
}

ov::Tensor number(std::uint32_t value) {
    ov::Tensor tensor(ov::element::u32, ov::Shape{});
    *tensor.data<std::uint32_t>() = value;
    return tensor;
}

TinyTokenizer::TinyTokenizer() {
    for (int byte = 0; byte < 256; ++byte) {
        add(printable(static_cast<unsigned char>(byte)), kNormal);
    }
    const std::vector<std::pair<std::string, std::string>> pairs{
        {"h", "e"},   {"l", "l"},   {"he", "ll"},     {"hell", "o"}, {" ", " "},
        {"  ", "  "}, {" ", "a"},   {"\xF0", "\x9F"}, {"n", "d"},    {"e", "nd"},
        {"i", "m"},   {"\n", "\n"}, {"\xC3", "\xA9"},
    };
    for (const auto& [left, right] : pairs) {
        merges.push_back(printable_text(left) + " " + printable_text(right));
        add(printable_text(left + right), kNormal);
    }
    for (const auto* marker : {"<|begin|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>"}) {
        add(marker, kControl);
    }
    for (const auto* marker : {"<tool_call>", "</tool_call>", "<think>", "<think>\n"}) {
        add(marker, kUserDefined);
    }
    add("[PAD0]", kUnused);
}

void TinyTokenizer::add(const std::string& token, std::int32_t type) {
    tokens.push_back(token);
    types.push_back(type);
}

std::int64_t TinyTokenizer::id(const std::string& token) const {
    for (const auto& text : {token, printable_text(token)}) {
        const auto found = std::find(tokens.begin(), tokens.end(), text);
        if (found != tokens.end()) {
            return found - tokens.begin();
        }
    }
    throw std::invalid_argument("no such token: " + token);
}

ov::AnyMap TinyTokenizer::metadata() const {
    const auto id_of = [&](const char* token) { return static_cast<std::uint32_t>(id(token)); };
    return {{"model", std::string("gpt2")},
            {"pre", std::string("gpt-2")},
            {"tokens", tokens},
            {"merges", merges},
            {"token_type", numbers(types)},
            {"bos_token_id", number(id_of("<|begin|>"))},
            {"eos_token_id", number(id_of("<|im_end|>"))}};
}

ov::AnyMap TinyTokenizer::metadata_with(bool front_bos) {
    auto metadata = TinyTokenizer().metadata();
    ov::Tensor flag(ov::element::boolean, ov::Shape{});
    *flag.data<bool>() = front_bos;
    metadata["add_bos_token"] = flag;
    return metadata;
}

SavedTokenizer::SavedTokenizer(const ov::AnyMap& metadata) {
    auto pattern = (std::filesystem::temp_directory_path() / "tokenizer-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
        throw std::runtime_error("cannot make a temporary folder");
    }
    directory_ = pattern;
    save_gguf_tokenizer(build_gguf_tokenizer(metadata), directory_);
}

SavedTokenizer::~SavedTokenizer() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
}

}  // namespace shardline
