#include "stage/least_rows.hpp"

#include <algorithm>
#include <bit>

namespace shardline {

std::uint32_t least_rows(std::uint32_t most,
                         const std::function<std::string(std::uint32_t)>& first_row) {
    std::uint32_t least = std::min(most, kMostProbedRows);
    const std::string expected = first_row(least);
    while (least > 1 && first_row(least - 1) == expected) {
        --least;
    }
    return least;
}

std::uint32_t filled_up_rows(std::uint32_t rows, std::uint32_t most) {
    constexpr std::uint32_t kEverySizeUpTo = 32;
    constexpr std::uint32_t kSizesPerDoubling = 8;
    if (rows <= kEverySizeUpTo) {
        return rows;
    }
    const std::uint32_t apart = std::bit_floor(rows - 1) / kSizesPerDoubling;
    return std::max(rows, std::min(most, (rows + apart - 1) / apart * apart));
}

}  // namespace shardline
