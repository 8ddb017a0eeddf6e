#include "step/stage_spec.hpp"

#include <fmt/format.h>

namespace shardline {

std::string to_string(const PartRange& range) {
    std::string text = range.with_embedding ? "embed" : "";
    const auto append = [&text](const std::string& piece) {
        text += text.empty() ? piece : "+" + piece;
    };
    if (range.layers.size() > 0) {
        append(fmt::format("{}-{}", range.layers.first, range.layers.last));
    }
    if (range.with_head) {
        append("head");
    }
    return text;
}

}  // namespace shardline
