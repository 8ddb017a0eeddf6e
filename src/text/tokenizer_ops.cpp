#include "text/tokenizer_ops.hpp"

#include <fmt/format.h>

#include <openvino/op/constant.hpp>

#include "base/error.hpp"

namespace shardline {

namespace {

using ov::op::v0::Constant;

std::shared_ptr<Constant> require_constant(const ov::Output<ov::Node>& output,
                                           ov::element::Type type) {
    auto constant = ov::as_type_ptr<Constant>(output.get_node_shared_ptr());
    if (constant == nullptr || constant->get_element_type() != type) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("tokenizer graph: {} is not a constant of type {}",
                                output.get_node()->get_friendly_name(), type.to_string()));
    }
    return constant;
}

bool is_word_byte(unsigned char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= 'a' && byte <= 'z') || byte == '_' || byte >= 0x80;
}

}  // namespace

ov::OutputVector string_constants(const std::vector<std::string>& strings) {
    std::vector<std::int32_t> begins;
    std::vector<std::int32_t> ends;
    std::string bytes;
    begins.reserve(strings.size());
    ends.reserve(strings.size());
    for (const auto& text : strings) {
        begins.push_back(static_cast<std::int32_t>(bytes.size()));
        bytes += text;
        ends.push_back(static_cast<std::int32_t>(bytes.size()));
    }
    return {id_constant(begins), id_constant(ends), text_constant(bytes)};
}

ov::Output<ov::Node> text_constant(const std::string& text) {
    return std::make_shared<Constant>(ov::element::u8, ov::Shape{text.size()}, text.data());
}

ov::Output<ov::Node> id_constant(const std::vector<std::int32_t>& ids) {
    return std::make_shared<Constant>(ov::element::i32, ov::Shape{ids.size()}, ids);
}

ov::Output<ov::Node> scalar_constant(std::int32_t value) {
    return std::make_shared<Constant>(ov::element::i32, ov::Shape{},
                                      std::vector<std::int32_t>{value});
}

std::vector<std::string> read_string_constants(const ov::Output<ov::Node>& begins,
                                               const ov::Output<ov::Node>& ends,
                                               const ov::Output<ov::Node>& bytes) {
    const auto firsts = require_constant(begins, ov::element::i32)->cast_vector<std::int32_t>();
    const auto lasts = require_constant(ends, ov::element::i32)->cast_vector<std::int32_t>();
    const auto chars = require_constant(bytes, ov::element::u8);
    const auto size = static_cast<std::int64_t>(chars->get_byte_size());
    if (firsts.size() != lasts.size()) {
        throw Error(ErrorCode::kCorrupt, "tokenizer graph: string begins and ends do not pair");
    }
    std::vector<std::string> strings;
    strings.reserve(firsts.size());
    const auto* data = static_cast<const char*>(chars->get_data_ptr());
    for (std::size_t index = 0; index < firsts.size(); ++index) {
        if (firsts[index] < 0 || lasts[index] < firsts[index] || lasts[index] > size) {
            throw Error(ErrorCode::kCorrupt,
                        fmt::format("tokenizer graph: string {} lies outside its bytes", index));
        }
        strings.emplace_back(data + firsts[index], data + lasts[index]);
    }
    return strings;
}

std::string unmatchable_token(std::size_t id) {
    return fmt::format("\xFF\xFE{}", id);
}

std::string quote_pattern(const std::string& text) {
    std::string pattern;
    for (const char character : text) {
        if (!is_word_byte(static_cast<unsigned char>(character))) {
            pattern.push_back('\\');
        }
        pattern.push_back(character);
    }
    return pattern;
}

}  // namespace shardline
