#include "text/gguf_vocabulary.hpp"

#include <fmt/format.h>

#include <cmath>
#include <openvino/runtime/tensor.hpp>

#include "base/error.hpp"

namespace shardline {

namespace {

constexpr std::size_t kTokensMax = std::size_t{1} << 22;
constexpr std::size_t kMergesMax = std::size_t{1} << 24;
// Offsets inside tokenizer models are 32-bit.
constexpr std::size_t kVocabularyBytesMax = std::size_t{1} << 30;

[[noreturn]] void corrupt(const std::string& key, const std::string& what) {
    throw Error(ErrorCode::kCorrupt, fmt::format("GGUF tokenizer metadata: \"{}\" {}", key, what));
}

const ov::Any* find(const ov::AnyMap& metadata, const std::string& key) {
    const auto found = metadata.find(key);
    return found == metadata.end() || found->second.empty() ? nullptr : &found->second;
}

double element_of(const ov::Tensor& tensor, std::size_t index, const std::string& key) {
    switch (tensor.get_element_type()) {
        case ov::element::Type_t::boolean:
        case ov::element::Type_t::u8: return static_cast<const std::uint8_t*>(tensor.data())[index];
        case ov::element::Type_t::i8: return static_cast<const std::int8_t*>(tensor.data())[index];
        case ov::element::Type_t::u16:
            return static_cast<const std::uint16_t*>(tensor.data())[index];
        case ov::element::Type_t::i16:
            return static_cast<const std::int16_t*>(tensor.data())[index];
        case ov::element::Type_t::u32:
            return static_cast<const std::uint32_t*>(tensor.data())[index];
        case ov::element::Type_t::i32:
            return static_cast<const std::int32_t*>(tensor.data())[index];
        case ov::element::Type_t::u64:
            return static_cast<double>(static_cast<const std::uint64_t*>(tensor.data())[index]);
        case ov::element::Type_t::i64:
            return static_cast<double>(static_cast<const std::int64_t*>(tensor.data())[index]);
        case ov::element::Type_t::f32: return static_cast<const float*>(tensor.data())[index];
        case ov::element::Type_t::f64: return static_cast<const double*>(tensor.data())[index];
        default: corrupt(key, "has an element type that holds no numbers");
    }
}

std::vector<double> read_numbers(const ov::Any& value, const std::string& key) {
    if (!value.is<ov::Tensor>()) {
        corrupt(key, "is not an array of numbers");
    }
    const auto tensor = value.as<ov::Tensor>();
    if (tensor.get_size() > kTokensMax) {
        corrupt(key, fmt::format("has {} elements, more than we accept", tensor.get_size()));
    }
    std::vector<double> numbers(tensor.get_size());
    for (std::size_t index = 0; index < numbers.size(); ++index) {
        numbers[index] = element_of(tensor, index, key);
    }
    return numbers;
}

std::optional<double> read_scalar(const ov::AnyMap& metadata, const std::string& key) {
    const ov::Any* value = find(metadata, key);
    if (value == nullptr) {
        return std::nullopt;
    }
    if (value->is<bool>()) {
        return value->as<bool>() ? 1 : 0;
    }
    if (value->is<std::int64_t>()) {
        return static_cast<double>(value->as<std::int64_t>());
    }
    const auto numbers = read_numbers(*value, key);
    if (numbers.size() != 1) {
        corrupt(key, fmt::format("has {} values where one is expected", numbers.size()));
    }
    return numbers.front();
}

std::optional<bool> read_flag(const ov::AnyMap& metadata, const std::string& key) {
    const auto number = read_scalar(metadata, key);
    return number ? std::optional<bool>(*number != 0) : std::nullopt;
}

std::optional<std::int64_t> read_id(const ov::AnyMap& metadata, const std::string& key,
                                    std::size_t vocab_size) {
    const auto number = read_scalar(metadata, key);
    if (!number) {
        return std::nullopt;
    }
    // The GGUF convention for "no such token" is all bits set.
    if (*number == 4294967295.0 || *number == -1.0) {
        return std::nullopt;
    }
    if (!(*number >= 0) || *number >= static_cast<double>(vocab_size) ||
        *number != std::floor(*number)) {
        corrupt(key, fmt::format("is {}, beyond the {} tokens", *number, vocab_size));
    }
    return static_cast<std::int64_t>(*number);
}

std::string read_text(const ov::AnyMap& metadata, const std::string& key) {
    const ov::Any* value = find(metadata, key);
    if (value == nullptr) {
        return {};
    }
    if (!value->is<std::string>()) {
        corrupt(key, "is not a string");
    }
    return value->as<std::string>();
}

std::vector<std::string> read_texts(const ov::AnyMap& metadata, const std::string& key,
                                    std::size_t count_max) {
    const ov::Any* value = find(metadata, key);
    if (value == nullptr) {
        corrupt(key, "is missing");
    }
    if (!value->is<std::vector<std::string>>()) {
        corrupt(key, "is not an array of strings");
    }
    auto texts = value->as<std::vector<std::string>>();
    if (texts.empty() || texts.size() > count_max) {
        corrupt(key, fmt::format("has {} entries", texts.size()));
    }
    std::size_t bytes = 0;
    for (const auto& text : texts) {
        bytes += text.size();
    }
    if (bytes > kVocabularyBytesMax) {
        corrupt(key, fmt::format("holds {} bytes, more than we accept", bytes));
    }
    return texts;
}

std::vector<GgufTokenType> read_token_types(const ov::AnyMap& metadata, std::size_t vocab_size) {
    const std::string key = "token_type";
    const ov::Any* value = find(metadata, key);
    if (value == nullptr) {
        return std::vector<GgufTokenType>(vocab_size, GgufTokenType::kNormal);
    }
    const auto numbers = read_numbers(*value, key);
    if (numbers.size() != vocab_size) {
        corrupt(key, fmt::format("has {} entries for {} tokens", numbers.size(), vocab_size));
    }
    std::vector<GgufTokenType> types(vocab_size, GgufTokenType::kNormal);
    for (std::size_t id = 0; id < vocab_size; ++id) {
        const double number = numbers[id];
        if (!(number >= 0 && number <= 6) || number != std::floor(number)) {
            corrupt(key, fmt::format("of token {} is {}, which is no token type", id, number));
        }
        if (number != 0) {  // 0 means "undefined"; such tokens are ordinary text
            types[id] = static_cast<GgufTokenType>(static_cast<std::int32_t>(number));
        }
    }
    return types;
}

std::vector<std::pair<std::string, std::string>> read_merges(const ov::AnyMap& metadata) {
    std::vector<std::pair<std::string, std::string>> merges;
    const auto lines = read_texts(metadata, "merges", kMergesMax);
    merges.reserve(lines.size());
    for (std::size_t index = 0; index < lines.size(); ++index) {
        const auto& line = lines[index];
        const auto space = line.find(' ');
        if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
            line.find(' ', space + 1) != std::string::npos) {
            corrupt("merges", fmt::format("entry {} does not split in two at a space", index));
        }
        merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    return merges;
}

std::vector<float> read_scores(const ov::AnyMap& metadata, std::size_t vocab_size) {
    const ov::Any* value = find(metadata, "scores");
    if (value == nullptr) {
        corrupt("scores", "is missing");
    }
    const auto numbers = read_numbers(*value, "scores");
    if (numbers.size() != vocab_size) {
        corrupt("scores", fmt::format("has {} entries for {} tokens", numbers.size(), vocab_size));
    }
    std::vector<float> scores(vocab_size);
    for (std::size_t id = 0; id < vocab_size; ++id) {
        if (!std::isfinite(numbers[id])) {
            corrupt("scores", fmt::format("of token {} is not a finite number", id));
        }
        scores[id] = static_cast<float>(numbers[id]);
    }
    return scores;
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const ov::AnyMap& metadata) {
    GgufVocabulary vocabulary;
    vocabulary.model = read_text(metadata, "model");
    if (vocabulary.model.empty()) {
        corrupt("model", "is missing");
    }
    if (vocabulary.model != "gpt2" && vocabulary.model != "llama") {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("GGUF tokenizer model \"{}\" is not supported (known: gpt2, llama)",
                                vocabulary.model));
    }
    vocabulary.pre = read_text(metadata, "pre");
    if (vocabulary.pre.empty()) {
        vocabulary.pre = "default";
    }
    vocabulary.tokens = read_texts(metadata, "tokens", kTokensMax);
    const std::size_t vocab_size = vocabulary.tokens.size();
    vocabulary.token_types = read_token_types(metadata, vocab_size);
    if (vocabulary.model == "gpt2") {
        vocabulary.merges = read_merges(metadata);
    } else {
        vocabulary.scores = read_scores(metadata, vocab_size);
    }
    vocabulary.bos_id = read_id(metadata, "bos_token_id", vocab_size);
    vocabulary.eos_id = read_id(metadata, "eos_token_id", vocab_size);
    vocabulary.eot_id = read_id(metadata, "eot_token_id", vocab_size);
    vocabulary.eom_id = read_id(metadata, "eom_token_id", vocab_size);
    vocabulary.unknown_id = read_id(metadata, "unknown_token_id", vocab_size);
    vocabulary.padding_id = read_id(metadata, "padding_token_id", vocab_size);
    vocabulary.add_bos = read_flag(metadata, "add_bos_token");
    vocabulary.add_eos = read_flag(metadata, "add_eos_token");
    vocabulary.add_space_prefix = read_flag(metadata, "add_space_prefix");
    vocabulary.chat_template = read_text(metadata, "chat_template");
    return vocabulary;
}

}  // namespace shardline
