#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/detokenizer.hpp"
#include "text/tokenizer.hpp"

namespace shardline {

// Tokens of one answer to text, piece by piece: the joined pieces equal decode() of all ids, byte
// for byte, and no piece holds part of a character, a U+FFFD that later bytes would mend, or the
// start of a stop string that may still complete. Single-threaded; the tokenizer must outlive it.
class TokenText final {
public:
    // Empty stop strings stop nothing. Throws Error(kInvalidArgument) for one that is not UTF-8.
    TokenText(const Tokenizer& tokenizer, std::vector<std::string> stop_strings);

    // Text that is certain after this token; often empty.
    std::string push(std::int64_t token);

    // Text still held back when the answer ends for any reason but a stop string. A stop string
    // may complete here too, when the last bytes turn out to be broken: see stopped().
    std::string finish();

    // True once a stop string completed: text before it has been returned, nothing follows.
    bool stopped() const { return stopped_; }

private:
    std::string release(std::string text, bool at_end);

    TextStream stream_;
    std::vector<std::string> stop_strings_;
    std::string held_;  // end of the text so far that may begin a stop string
    bool stopped_ = false;
};

}  // namespace shardline
