#pragma once

#include <string>
#include <string_view>

namespace shardline {

// The steps that turn the bytes of tokens into text, each fed piece by piece: what comes out never
// depends on how the input was cut. Single-threaded values.

// Bytes to valid UTF-8. A character waits until it is whole; what can no longer become one is
// replaced by U+FFFD as OpenVINO Tokenizers does it (one for a broken-off or stray sequence, one
// per byte for an overlong form, a surrogate or a number beyond Unicode).
class Utf8Repair final {
public:
    void push(std::string_view bytes, std::string& text);
    void finish(std::string& text);

private:
    void push_byte(unsigned char byte, std::string& text);

    std::string pending_;       // a character's first bytes
    std::size_t expected_ = 0;  // bytes of the whole character; meaningful while pending
};

// Drops one space in front of the whole text, as SentencePiece detokenizers do.
class LeadingSpaceStrip final {
public:
    // `only_before_text`: the space stays when another space or nothing follows it.
    explicit LeadingSpaceStrip(bool only_before_text) : only_before_text_(only_before_text) {}

    void push(std::string_view bytes, std::string& out);
    void finish(std::string& out);

private:
    enum class Place { kStart, kAfterSpace, kInside };

    bool only_before_text_;
    Place place_ = Place::kStart;
};

// Hugging Face's clean_up_tokenization_spaces: no space before . ? ! , and English contractions.
class SpaceCleanUp final {
public:
    void push(std::string_view text, std::string& out);
    void finish(std::string& out);

private:
    void settle(bool at_end, std::string& out);

    std::string held_;  // from a space that may still have to go; at most four bytes
};

// True when `text` is valid UTF-8.
bool is_valid_utf8(std::string_view text);

// `text` with U+FFFD for what is not UTF-8.
std::string repaired_utf8(std::string_view text);

}  // namespace shardline
