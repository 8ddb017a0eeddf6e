#include "stage/least_rows.hpp"

#include <algorithm>

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

}  // namespace shardline
