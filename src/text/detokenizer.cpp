#include "text/detokenizer.hpp"

#include <algorithm>

namespace shardline {

namespace {

// Ids decoded again in front of a new one when only whole texts can be decoded.
constexpr std::size_t kWindowIds = 8;
// More than a character has bytes: a text that ends in U+FFFD for longer is really broken.
constexpr std::size_t kBrokenIdsMax = 8;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool starts_with(std::string_view text, std::string_view start) {
    return text.substr(0, start.size()) == start;
}

}  // namespace

Detokenizer::Detokenizer(std::vector<std::string> token_bytes,
                         std::vector<std::int32_t> special_ids, TextRules rules)
    : token_bytes_(std::move(token_bytes)), special_(token_bytes_.size(), false), rules_(rules) {
    for (const auto id : special_ids) {
        if (id >= 0 && static_cast<std::size_t>(id) < special_.size()) {
            special_[static_cast<std::size_t>(id)] = true;
        }
    }
}

Detokenizer::Detokenizer(std::size_t vocab_size, WholeDecode whole_decode)
    : token_bytes_(vocab_size),
      special_(vocab_size, false),
      whole_decode_(std::move(whole_decode)) {}

bool Detokenizer::is_special(std::int64_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < special_.size() &&
           special_[static_cast<std::size_t>(id)];
}

std::string Detokenizer::decode(std::span<const std::int64_t> ids, bool skip_special) const {
    if (whole_decode_) {
        return repaired_utf8(whole_decode_(ids));
    }
    TextStream stream(*this, skip_special);
    std::string text;
    for (const auto id : ids) {
        text += stream.push(id);
    }
    return text + stream.finish();
}

std::string Detokenizer::token_bytes(std::int64_t id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= token_bytes_.size()) {
        return {};
    }
    return whole_decode_ ? whole_decode_(std::span(&id, 1))
                         : token_bytes_[static_cast<std::size_t>(id)];
}

TextStream::TextStream(const Detokenizer& detokenizer, bool skip_special)
    : detokenizer_(detokenizer), skip_special_(skip_special) {
    if (detokenizer.rules_.strip_leading_space) {
        strip_.emplace(detokenizer.rules_.strip_only_before_text);
    }
    if (detokenizer.rules_.clean_up_spaces) {
        clean_up_.emplace();
    }
}

std::string TextStream::push(std::int64_t id) {
    if (detokenizer_.whole_decode_) {
        return push_whole(id);
    }
    const auto& tokens = detokenizer_.token_bytes_;
    if (id < 0 || static_cast<std::size_t>(id) >= tokens.size() ||
        (skip_special_ && detokenizer_.is_special(id))) {
        return {};
    }
    return run(tokens[static_cast<std::size_t>(id)], false);
}

std::string TextStream::finish() {
    return detokenizer_.whole_decode_ ? finish_whole() : run({}, true);
}

std::string TextStream::run(std::string_view bytes, bool at_end) {
    std::string stripped;
    if (strip_) {
        strip_->push(bytes, stripped);
        if (at_end) {
            strip_->finish(stripped);
        }
        bytes = stripped;
    }
    std::string repaired;
    repair_.push(bytes, repaired);
    if (at_end) {
        repair_.finish(repaired);
    }
    if (!clean_up_) {
        return repaired;
    }
    std::string text;
    clean_up_->push(repaired, text);
    if (at_end) {
        clean_up_->finish(text);
    }
    return text;
}

std::string TextStream::push_whole(std::int64_t id) {
    ids_.push_back(id);
    const std::span<const std::int64_t> window(ids_.data() + window_first_,
                                               ids_.size() - window_first_);
    const auto before = detokenizer_.decode(window.first(settled_ - window_first_), skip_special_);
    const auto now = detokenizer_.decode(window, skip_special_);
    const bool may_be_mended =
        ends_with(now, kReplacement) && ids_.size() - settled_ <= kBrokenIdsMax;
    if (may_be_mended || now.size() <= before.size() || !starts_with(now, before)) {
        return {};
    }
    settled_ = ids_.size();
    window_first_ = settled_ - std::min(settled_, kWindowIds);
    return now.substr(before.size());
}

std::string TextStream::finish_whole() {
    const std::span<const std::int64_t> window(ids_.data() + window_first_,
                                               ids_.size() - window_first_);
    const auto before = detokenizer_.decode(window.first(settled_ - window_first_), skip_special_);
    const auto now = detokenizer_.decode(window, skip_special_);
    settled_ = ids_.size();
    return starts_with(now, before) ? now.substr(before.size()) : std::string();
}

}  // namespace shardline
