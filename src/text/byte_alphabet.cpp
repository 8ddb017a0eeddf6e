#include "text/byte_alphabet.hpp"

#include <array>
#include <cstdint>

namespace shardline {

namespace {

constexpr std::uint32_t kFirstShifted = 256;  // characters from here stand for unprintable bytes
constexpr std::uint32_t kLastShifted = 323;

constexpr bool stands_for_itself(std::uint32_t byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
           (byte >= 174 && byte <= 255);
}

// shifted_bytes()[c - 256] is the byte that character c stands for.
constexpr std::array<std::uint8_t, kLastShifted - kFirstShifted + 1> shifted_bytes() {
    std::array<std::uint8_t, kLastShifted - kFirstShifted + 1> bytes{};
    std::size_t next = 0;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        if (!stands_for_itself(byte)) {
            bytes.at(next++) = static_cast<std::uint8_t>(byte);
        }
    }
    return bytes;
}

constexpr auto kShiftedBytes = shifted_bytes();

}  // namespace

std::string bytes_of_printable(std::string_view token) {
    std::string bytes;
    bytes.reserve(token.size());
    for (std::size_t at = 0; at < token.size();) {
        const auto lead = static_cast<unsigned char>(token[at]);
        std::uint32_t character = lead;
        std::size_t length = 1;
        if (lead >= 0x80) {  // the alphabet ends below U+0800: two bytes at most
            if (lead < 0xC2 || lead > 0xDF || at + 1 >= token.size()) {
                return std::string(token);
            }
            character = (lead & 0x1FU) << 6 | (static_cast<unsigned char>(token[at + 1]) & 0x3FU);
            length = 2;
        }
        if (character < kFirstShifted && stands_for_itself(character)) {
            bytes.push_back(static_cast<char>(character));
        } else if (character >= kFirstShifted && character <= kLastShifted) {
            bytes.push_back(static_cast<char>(kShiftedBytes.at(character - kFirstShifted)));
        } else {
            return std::string(token);
        }
        at += length;
    }
    return bytes;
}

std::size_t utf8_length(unsigned char lead) {
    if (lead < 0xC0) {
        return 1;
    }
    if (lead < 0xE0) {
        return 2;
    }
    return lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 1;
}

std::size_t utf8_count(std::string_view text) {
    std::size_t count = 0;
    for (const char byte : text) {
        count += (static_cast<unsigned char>(byte) & 0xC0U) != 0x80 ? 1 : 0;
    }
    return count;
}

}  // namespace shardline
