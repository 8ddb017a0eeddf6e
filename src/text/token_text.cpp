#include "text/token_text.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "text/text_repair.hpp"

namespace shardline {

namespace {

// Bytes at the end of `text` that may be the start of `stop`, without being all of it.
std::size_t started_bytes(const std::string& text, const std::string& stop) {
    for (std::size_t count = std::min(text.size(), stop.size() - 1); count > 0; --count) {
        if (text.compare(text.size() - count, count, stop, 0, count) == 0) {
            return count;
        }
    }
    return 0;
}

}  // namespace

TokenText::TokenText(const Tokenizer& tokenizer, std::vector<std::string> stop_strings)
    : stream_(tokenizer.detokenizer(), /*skip_special=*/true),
      stop_strings_(std::move(stop_strings)) {
    std::erase(stop_strings_, std::string());
    for (const auto& stop : stop_strings_) {
        if (!is_valid_utf8(stop)) {
            throw Error(ErrorCode::kInvalidArgument, "a stop string is not valid UTF-8");
        }
    }
}

std::string TokenText::push(std::int64_t token) {
    return stopped_ ? std::string() : release(stream_.push(token), false);
}

std::string TokenText::finish() {
    return stopped_ ? std::string() : release(stream_.finish(), true);
}

std::string TokenText::release(std::string text, bool at_end) {
    text.insert(0, held_);
    held_.clear();
    std::size_t stop_at = std::string::npos;
    std::size_t started = 0;
    for (const auto& stop : stop_strings_) {
        stop_at = std::min(stop_at, text.find(stop));
        started = std::max(started, started_bytes(text, stop));
    }
    if (stop_at != std::string::npos) {
        stopped_ = true;
        text.erase(stop_at);
    } else if (!at_end) {
        held_ = text.substr(text.size() - started);
        text.erase(text.size() - started);
    }
    return text;
}

}  // namespace shardline
