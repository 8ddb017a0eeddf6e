#pragma once

#include <string>
#include <string_view>

namespace shardline {

// Byte-level BPE vocabularies write every byte as one printable character (GPT-2's alphabet:
// a space is "Ġ"). Gives the bytes meant by such a token; a token with a character outside the
// alphabet (control tokens often have one) stands for itself and comes back unchanged.
std::string bytes_of_printable(std::string_view token);

// Length in bytes of the UTF-8 character that starts with `lead`; 1 for what cannot start one.
std::size_t utf8_length(unsigned char lead);

// Number of UTF-8 characters in valid text.
std::size_t utf8_count(std::string_view text);

}  // namespace shardline
