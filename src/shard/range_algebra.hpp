#pragma once

#include <cstdint>
#include <vector>

#include "model/byte_range.hpp"

namespace shardline {

// Gaps up to this size are filled when ranges are merged: a page is the least that a file system
// stores and a mapping reads, so leaving them out would save nothing.
inline constexpr std::uint64_t kMergeGapBytes = 4096;

// Ascending and disjoint, empty ones left out, neighbours closer than kMergeGapBytes joined.
std::vector<ByteRange> merged(std::vector<ByteRange> ranges);

// What of `ranges` is not in `holes`; both ascending and disjoint.
std::vector<ByteRange> without(const std::vector<ByteRange>& ranges,
                               const std::vector<ByteRange>& holes);

// Cut at the multiples of `grid_bytes`:
//
//     ranges  ....[=======|===]......[==|=======|=]...
//     grid        |       |       |     |       |
std::vector<ByteRange> cut_on_grid(const std::vector<ByteRange>& ranges, std::uint64_t grid_bytes);

std::uint64_t total_bytes(const std::vector<ByteRange>& ranges);

}  // namespace shardline
