#include "engine/step_cost.hpp"

#include <gtest/gtest.h>

namespace shardline {
namespace {

TEST(StepCost, SaysNothingUntilSizesDiffer) {
    StepCost cost;
    EXPECT_FALSE(cost.line());
    for (int i = 0; i < 50; ++i) {
        cost.observe(3, 20.0 + i % 3);
    }
    EXPECT_FALSE(cost.line());
    cost.observe(100, 70.0);
    EXPECT_TRUE(cost.line());
}

TEST(StepCost, FindsTheLine) {
    StepCost cost;
    for (std::uint32_t i = 0; i < 40; ++i) {
        const std::uint32_t rows = 1 + i * 7 % 64;
        cost.observe(rows, 20.0 + 0.5 * rows + (i % 2 == 0 ? 0.4 : -0.4));
    }
    ASSERT_TRUE(cost.line());
    EXPECT_NEAR(cost.line()->fixed_ms, 20.0, 0.5);
    EXPECT_NEAR(cost.line()->per_row_ms, 0.5, 0.02);
    EXPECT_NEAR(cost.line()->ms(100), 70.0, 2.0);
}

TEST(StepCost, FollowsAMachineThatSlowsDown) {
    StepCost cost;
    for (std::uint32_t i = 0; i < 500; ++i) {
        cost.observe(1 + i % 30, 10.0);
    }
    for (std::uint32_t i = 0; i < 500; ++i) {
        cost.observe(1 + i % 30, 20.0 + i % 30);
    }
    EXPECT_NEAR(cost.line()->ms(1), 20.0, 0.5);
    EXPECT_NEAR(cost.line()->ms(30), 49.0, 0.5);
}

TEST(StepCost, MoreRowsNeverCostLess) {
    StepCost cost;
    cost.observe(1, 30.0);
    cost.observe(50, 10.0);
    EXPECT_GE(cost.line()->per_row_ms, 0.0);
}

}  // namespace
}  // namespace shardline
