#include "shard/range_algebra.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "unit/shard/print_range.hpp"

namespace shardline {

namespace {

using Ranges = std::vector<ByteRange>;

TEST(RangeAlgebra, MergesOverlapsNeighboursAndSmallGaps) {
    EXPECT_EQ(merged({{100000, 10}, {0, 5}, {3, 4}, {7, 1}, {50, 0}}),
              (Ranges{{0, 8}, {100000, 10}}));
    EXPECT_EQ(merged({{0, 10}, {10 + kMergeGapBytes, 1}}), (Ranges{{0, 11 + kMergeGapBytes}}));
    EXPECT_EQ(merged({{0, 10}, {11 + kMergeGapBytes, 1}}),
              (Ranges{{0, 10}, {11 + kMergeGapBytes, 1}}));
    EXPECT_EQ(merged({{0, 100}, {10, 5}}), (Ranges{{0, 100}}));
    EXPECT_EQ(merged({}), Ranges{});
}

TEST(RangeAlgebra, CutsOnTheGrid) {
    EXPECT_EQ(cut_on_grid({{5, 20}}, 10), (Ranges{{5, 5}, {10, 10}, {20, 5}}));
    EXPECT_EQ(cut_on_grid({{10, 10}, {30, 1}}, 10), (Ranges{{10, 10}, {30, 1}}));
}

// Against the plain way: a bitmap.
TEST(RangeAlgebra, WithoutEqualsABitmap) {
    constexpr std::size_t kSize = 64;
    std::mt19937 random(7);
    const auto random_bitmap = [&] {
        std::vector<bool> bits(kSize);
        for (std::size_t i = 0; i < kSize; ++i) {
            bits[i] = random() % 3 != 0;
        }
        return bits;
    };
    const auto to_ranges = [](const std::vector<bool>& bits) {
        Ranges ranges;
        for (std::size_t i = 0; i < kSize; ++i) {
            if (bits[i] && !ranges.empty() && ranges.back().end() == i) {
                ++ranges.back().size;
            } else if (bits[i]) {
                ranges.push_back({i, 1});
            }
        }
        return ranges;
    };
    for (int round = 0; round < 2000; ++round) {
        const std::vector<bool> wanted = random_bitmap();
        const std::vector<bool> holes = random_bitmap();
        std::vector<bool> left(kSize);
        for (std::size_t i = 0; i < kSize; ++i) {
            left[i] = wanted[i] && !holes[i];
        }
        ASSERT_EQ(without(to_ranges(wanted), to_ranges(holes)), to_ranges(left));
        ASSERT_EQ(total_bytes(to_ranges(left)),
                  static_cast<std::uint64_t>(std::count(left.begin(), left.end(), true)));
    }
}

}  // namespace
}  // namespace shardline
