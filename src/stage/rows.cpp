#include "stage/rows.hpp"

#include <cstring>

namespace shardline {

namespace {

// A floating number is finite unless all its exponent bits are set. Integer compares over blocks
// of a fixed size, so that the compiler makes vector code of the inner loop.
template <typename Word>
std::optional<std::size_t> find_full_exponent(const Word* words, std::size_t count,
                                              Word exponent_mask) {
    constexpr std::size_t kBlock = 256;
    std::size_t begin = 0;
    for (; begin + kBlock <= count; begin += kBlock) {
        Word found = 0;
        for (std::size_t i = 0; i < kBlock; ++i) {
            found |= static_cast<Word>((words[begin + i] & exponent_mask) == exponent_mask);
        }
        if (found != 0) {
            break;
        }
    }
    for (; begin < count; ++begin) {
        if ((words[begin] & exponent_mask) == exponent_mask) {
            return begin;
        }
    }
    return std::nullopt;
}

}  // namespace

void gather_rows(const void* source, std::size_t row_bytes, const std::vector<std::uint32_t>& kept,
                 std::string& out) {
    const char* bytes = static_cast<const char*>(source);
    out.clear();
    out.reserve(kept.size() * row_bytes);
    for (std::size_t i = 0; i < kept.size();) {
        std::size_t run = 1;
        while (i + run < kept.size() && kept[i + run] == kept[i] + run) {
            ++run;
        }
        out.append(bytes + kept[i] * row_bytes, run * row_bytes);
        i += run;
    }
}

std::optional<std::size_t> find_not_finite(const void* data, std::size_t num_elements,
                                           ElementType type) {
    switch (type) {
        case ElementType::kF32:
            return find_full_exponent(static_cast<const std::uint32_t*>(data), num_elements,
                                      std::uint32_t{0x7f800000});
        case ElementType::kF16:
            return find_full_exponent(static_cast<const std::uint16_t*>(data), num_elements,
                                      std::uint16_t{0x7c00});
        case ElementType::kBf16:
            return find_full_exponent(static_cast<const std::uint16_t*>(data), num_elements,
                                      std::uint16_t{0x7f80});
        default: return std::nullopt;
    }
}

}  // namespace shardline
