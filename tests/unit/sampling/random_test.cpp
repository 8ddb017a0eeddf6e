#include "sampling/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace shardline {
namespace {

TEST(UniformAt, StaysBelowOneAndSpreadsEvenly) {
    constexpr int kDraws = 200'000;
    constexpr int kBins = 100;
    std::array<int, kBins> counts{};
    for (int i = 0; i < kDraws; ++i) {
        const double value = uniform_at(42, static_cast<std::uint64_t>(i));
        ASSERT_GE(value, 0.0);
        ASSERT_LT(value, 1.0);
        ++counts[static_cast<std::size_t>(value * kBins)];
    }
    double chi_square = 0.0;
    for (int count : counts) {
        const double expected = double{kDraws} / kBins;
        chi_square += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LT(chi_square, 148.2);  // 99 degrees of freedom, p = 0.001
}

TEST(UniformAt, SeedAndPositionAreDifferentDirections) {
    std::set<double> values;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        for (std::uint64_t position = 0; position < 100; ++position) {
            values.insert(uniform_at(seed, position));
        }
    }
    EXPECT_EQ(values.size(), 10'000U);
}

TEST(UniformAt, NeighbouringSeedsAreUncorrelated) {
    constexpr int kDraws = 50'000;
    for (std::uint64_t step : {1U, 2U, 1U << 16}) {
        double sum = 0.0;
        for (int i = 0; i < kDraws; ++i) {
            const auto position = static_cast<std::uint64_t>(i);
            sum += (uniform_at(7, position) - 0.5) * (uniform_at(7 + step, position) - 0.5);
        }
        // Standard deviation of one product is 1/12.
        EXPECT_LT(std::abs(sum / kDraws), 4.0 / 12.0 / std::sqrt(double{kDraws}));
    }
}

}  // namespace
}  // namespace shardline
