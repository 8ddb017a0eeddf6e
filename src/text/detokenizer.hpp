#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_repair.hpp"

namespace shardline {

// What happens to the joined bytes of the tokens on their way to text, in this order.
struct TextRules {
    bool strip_leading_space = false;
    bool strip_only_before_text = false;  // refines strip_leading_space
    bool clean_up_spaces = false;
};

// Ids to text. Knows the bytes of every token, so that text can grow token by token at the cost of
// the new token alone. Immutable, thread-safe.
class Detokenizer final {
public:
    using WholeDecode = std::function<std::string(std::span<const std::int64_t>)>;

    Detokenizer(std::vector<std::string> token_bytes, std::vector<std::int32_t> special_ids,
                TextRules rules);

    // For a model whose tokens have no bytes of their own: every text is asked of
    // `whole_decode`, which must be thread-safe.
    Detokenizer(std::size_t vocab_size, WholeDecode whole_decode);

    std::size_t vocab_size() const { return token_bytes_.size(); }
    bool is_special(std::int64_t id) const;  // left out of answers; false beyond the vocabulary

    // Ids beyond the vocabulary (padding rows of a model) stand for nothing.
    std::string decode(std::span<const std::int64_t> ids, bool skip_special) const;
    std::string token_bytes(std::int64_t id) const;

private:
    friend class TextStream;

    std::vector<std::string> token_bytes_;
    std::vector<bool> special_;
    TextRules rules_;
    WholeDecode whole_decode_;  // empty when the tokens' own bytes are known
};

// One text that grows by tokens. The joined results of push() and finish() are decode() of all
// ids; none of them ends inside a character. Single-threaded; the detokenizer must outlive it.
class TextStream final {
public:
    TextStream(const Detokenizer& detokenizer, bool skip_special);

    std::string push(std::int64_t id);
    std::string finish();

private:
    std::string run(std::string_view bytes, bool at_end);
    std::string push_whole(std::int64_t id);
    std::string finish_whole();

    const Detokenizer& detokenizer_;
    bool skip_special_;
    std::optional<LeadingSpaceStrip> strip_;
    Utf8Repair repair_;
    std::optional<SpaceCleanUp> clean_up_;

    // Only for whole_decode: the ids so far, and the two marks of its sliding window.
    std::vector<std::int64_t> ids_;
    std::size_t window_first_ = 0;
    std::size_t settled_ = 0;  // text of ids_[0, settled_) has been returned
};

}  // namespace shardline
