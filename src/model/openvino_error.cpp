#include "model/openvino_error.hpp"

#include <algorithm>
#include <string_view>

namespace shardline {

std::string openvino_reason(const std::string& exception_text) {
    const std::string_view text = exception_text;
    std::string_view first;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        std::string_view line = text.substr(at, end - at);
        at = end + 1;
        line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
        if (line.empty()) {
            continue;
        }
        first = first.empty() ? line : first;
        const bool location = line.starts_with("Exception from ") ||
                              (line.starts_with("Check '") && line.ends_with(':'));
        if (!location) {
            return std::string(line);
        }
    }
    return std::string(first);
}

}  // namespace shardline
