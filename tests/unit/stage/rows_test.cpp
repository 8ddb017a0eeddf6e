#include "stage/rows.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace shardline {
namespace {

TEST(GatherRows, KeepsTheOrderAndOnlyTheRowsAsked) {
    const std::string source = "aabbccddeeff";
    std::string out = "of an earlier step";
    gather_rows(source.data(), 2, {0, 2, 3, 5}, out);
    EXPECT_EQ(out, "aaccddff");
    gather_rows(source.data(), 2, {}, out);
    EXPECT_TRUE(out.empty());
}

class NotFinite : public testing::TestWithParam<std::size_t> {};

// Positions around the blocks in which the search goes.
INSTANTIATE_TEST_SUITE_P(Positions, NotFinite, testing::Values(0, 1, 255, 256, 257, 511, 512, 999));

TEST_P(NotFinite, IsFoundAtItsPlaceInF32) {
    for (const float fault : {std::nanf(""), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()}) {
        std::vector<float> values(1000, std::numeric_limits<float>::max());
        EXPECT_FALSE(find_not_finite(values.data(), values.size(), ElementType::kF32));
        values[GetParam()] = fault;
        EXPECT_EQ(find_not_finite(values.data(), values.size(), ElementType::kF32), GetParam());
    }
}

TEST_P(NotFinite, IsFoundAtItsPlaceInHalfPrecision) {
    std::vector<std::uint16_t> halves(1000, 0x7bff);  // the largest finite f16
    EXPECT_FALSE(find_not_finite(halves.data(), halves.size(), ElementType::kF16));
    halves[GetParam()] = 0xfc00;
    EXPECT_EQ(find_not_finite(halves.data(), halves.size(), ElementType::kF16), GetParam());

    std::vector<std::uint16_t> brains(1000, 0x7f7f);  // the largest finite bf16
    EXPECT_FALSE(find_not_finite(brains.data(), brains.size(), ElementType::kBf16));
    brains[GetParam()] = 0x7fc0;
    EXPECT_EQ(find_not_finite(brains.data(), brains.size(), ElementType::kBf16), GetParam());
}

TEST(FindNotFinite, IntegersHaveNone) {
    const std::vector<std::int64_t> values(300, -1);
    EXPECT_FALSE(find_not_finite(values.data(), values.size(), ElementType::kI64));
}

}  // namespace
}  // namespace shardline
