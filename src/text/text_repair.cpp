#include "text/text_repair.hpp"

#include <array>
#include <cstdint>

#include "text/byte_alphabet.hpp"

namespace shardline {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::uint32_t kCharacterMax = 0x10FFFF;

void append_replacements(std::size_t count, std::string& text) {
    for (std::size_t index = 0; index < count; ++index) {
        text += kReplacement;
    }
}

bool is_continuation(unsigned char byte) {
    return (byte & 0xC0U) == 0x80;
}

// `bytes` have the shape of one character: a lead and as many continuations as it announces.
bool is_character(std::string_view bytes) {
    constexpr std::array<std::uint32_t, 5> kSmallest{0, 0, 0x80, 0x800, 0x10000};
    std::uint32_t character = static_cast<unsigned char>(bytes[0]) & (0xFFU >> (bytes.size() + 1));
    for (const char byte : bytes.substr(1)) {
        character = character << 6 | (static_cast<unsigned char>(byte) & 0x3FU);
    }
    const bool surrogate = character >= 0xD800 && character <= 0xDFFF;
    return character >= kSmallest.at(bytes.size()) && character <= kCharacterMax && !surrogate;
}

enum class Contraction { kNo, kYes, kUndecided };

// Whether `text`, which starts with a space, starts with what clean-up shortens; `length` is then
// the number of bytes it covers.
Contraction shortens(std::string_view text, std::size_t& length) {
    constexpr std::string_view kBeforeMarks = "\\.?!,";
    const auto at = [&](std::size_t index) { return index < text.size() ? text[index] : '\0'; };
    if (text.size() < 2) {
        return Contraction::kUndecided;
    }
    length = 2;
    if (kBeforeMarks.find(at(1)) != std::string_view::npos) {
        return Contraction::kYes;
    }
    if (at(1) != '\'' && at(1) != 'n') {
        return Contraction::kNo;
    }
    if (text.size() < 3) {
        return Contraction::kUndecided;
    }
    length = 3;
    if (at(1) == '\'' && (at(2) == 'm' || at(2) == 's' || at(2) == ' ')) {
        return Contraction::kYes;
    }
    const bool may_go_on = at(1) == '\'' ? at(2) == 'r' || at(2) == 'v' : at(2) == '\'';
    if (!may_go_on) {
        return Contraction::kNo;
    }
    if (text.size() < 4) {
        return Contraction::kUndecided;
    }
    length = 4;
    return at(3) == (at(1) == '\'' ? 'e' : 't') ? Contraction::kYes : Contraction::kNo;
}

}  // namespace

void Utf8Repair::push(std::string_view bytes, std::string& text) {
    for (const char byte : bytes) {
        push_byte(static_cast<unsigned char>(byte), text);
    }
}

void Utf8Repair::push_byte(unsigned char byte, std::string& text) {
    if (!pending_.empty() && !is_continuation(byte)) {
        pending_.clear();
        append_replacements(1, text);
    }
    if (pending_.empty()) {
        if (byte < 0x80) {
            text.push_back(static_cast<char>(byte));
        } else if (utf8_length(byte) == 1) {
            append_replacements(1, text);
        } else {
            expected_ = utf8_length(byte);
            pending_.push_back(static_cast<char>(byte));
        }
        return;
    }
    pending_.push_back(static_cast<char>(byte));
    if (pending_.size() == expected_) {
        if (is_character(pending_)) {
            text += pending_;
        } else {
            append_replacements(expected_, text);
        }
        pending_.clear();
    }
}

void Utf8Repair::finish(std::string& text) {
    if (!pending_.empty()) {
        pending_.clear();
        append_replacements(1, text);
    }
}

void LeadingSpaceStrip::push(std::string_view bytes, std::string& out) {
    while (place_ != Place::kInside && !bytes.empty()) {
        if (place_ == Place::kAfterSpace) {
            if (bytes.front() == ' ') {
                out.push_back(' ');
            }
            place_ = Place::kInside;
        } else if (bytes.front() == ' ') {
            place_ = only_before_text_ ? Place::kAfterSpace : Place::kInside;
            bytes.remove_prefix(1);
        } else {
            place_ = Place::kInside;
        }
    }
    out += bytes;
}

void LeadingSpaceStrip::finish(std::string& out) {
    if (place_ == Place::kAfterSpace) {
        out.push_back(' ');
        place_ = Place::kInside;
    }
}

void SpaceCleanUp::push(std::string_view text, std::string& out) {
    for (const char byte : text) {
        if (held_.empty() && byte != ' ') {
            out.push_back(byte);
            continue;
        }
        held_.push_back(byte);
        settle(false, out);
    }
}

void SpaceCleanUp::finish(std::string& out) {
    settle(true, out);
}

void SpaceCleanUp::settle(bool at_end, std::string& out) {
    while (!held_.empty()) {
        if (held_.front() != ' ') {
            out.push_back(held_.front());
            held_.erase(0, 1);
            continue;
        }
        std::size_t length = 0;
        const auto decision = shortens(held_, length);
        if (decision == Contraction::kYes) {
            // The space goes; of " ' " both go.
            out += held_.substr(1, length == 3 && held_[2] == ' ' ? 1 : length - 1);
            held_.erase(0, length);
        } else if (decision == Contraction::kNo || at_end) {
            out.push_back(' ');
            held_.erase(0, 1);
        } else {
            return;
        }
    }
}

bool is_valid_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const auto lead = static_cast<unsigned char>(text[at]);
        if (lead < 0x80) {
            ++at;
            continue;
        }
        const auto length = utf8_length(lead);
        if (length == 1 || at + length > text.size()) {
            return false;
        }
        for (std::size_t next = 1; next < length; ++next) {
            if (!is_continuation(static_cast<unsigned char>(text[at + next]))) {
                return false;
            }
        }
        if (!is_character(text.substr(at, length))) {
            return false;
        }
        at += length;
    }
    return true;
}

std::string repaired_utf8(std::string_view text) {
    Utf8Repair repair;
    std::string repaired;
    repair.push(text, repaired);
    repair.finish(repaired);
    return repaired;
}

}  // namespace shardline
