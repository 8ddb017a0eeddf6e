#pragma once

#include <cstdint>
#include <openvino/core/node_output.hpp>
#include <string>
#include <vector>

namespace shardline {

// Constants and conversions that tokenizer graphs are made of. A list of strings travels as three
// tensors (begins, ends, bytes), a batch of lists ("ragged") as two more in front of them.

ov::OutputVector string_constants(const std::vector<std::string>& strings);
ov::Output<ov::Node> text_constant(const std::string& text);
ov::Output<ov::Node> id_constant(const std::vector<std::int32_t>& ids);
ov::Output<ov::Node> scalar_constant(std::int32_t value);

// The strings of three constants. Throws Error(kCorrupt) when the offsets leave the bytes.
std::vector<std::string> read_string_constants(const ov::Output<ov::Node>& begins,
                                               const ov::Output<ov::Node>& ends,
                                               const ov::Output<ov::Node>& bytes);

// A string that no valid UTF-8 text contains, different for each id: it takes a token out of a
// vocabulary without moving the others.
std::string unmatchable_token(std::size_t id);

// Text as a pattern that matches exactly it.
std::string quote_pattern(const std::string& text);

}  // namespace shardline
