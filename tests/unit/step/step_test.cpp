#include "step/step.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "step/stage_spec.hpp"

namespace shardline {
namespace {

constexpr StepLimits kLimits{.num_blocks = 8, .max_rows = 64, .max_context = 200};

StepPlan good_plan() {
    StepPlan plan;
    plan.spans.push_back({SequenceId{1}, 0, 40, {BlockId{1}, BlockId{2}}});
    plan.spans.push_back({SequenceId{2}, 31, 1, {BlockId{3}}});
    plan.kept_rows = {39, 40};
    return plan;
}

TEST(CheckPlan, GoodPlanPasses) {
    EXPECT_EQ(check_plan(good_plan(), kLimits), "");
    EXPECT_EQ(num_rows(good_plan()), 41U);
}

TEST(CheckPlan, NamesWhatIsWrong) {
    const auto fault = [](auto change) {
        StepPlan plan = good_plan();
        change(plan);
        return check_plan(plan, kLimits);
    };
    using Plan = StepPlan&;
    EXPECT_NE(fault([](Plan plan) { plan.spans.clear(); }), "");
    EXPECT_NE(fault([](Plan plan) { plan.spans[0].num_tokens = 0; }), "");
    EXPECT_NE(fault([](Plan plan) { plan.spans[0].num_tokens = 65; }), "");
    EXPECT_NE(fault([](Plan plan) { plan.spans[0].block_table.pop_back(); }), "");
    EXPECT_NE(fault([](Plan plan) { plan.spans[1].block_table.push_back(BlockId{4}); }), "");
    EXPECT_NE(fault([](Plan plan) { plan.spans[0].block_table[0] = BlockId{8}; }), "");
    EXPECT_NE(fault([](Plan plan) { plan.spans[1].past_len = 200; }), "");
    EXPECT_NE(fault([](Plan plan) { plan.spans[1].past_len = UINT32_MAX; }), "");
    EXPECT_NE(fault([](Plan plan) { plan.kept_rows = {41}; }), "");
    EXPECT_NE(fault([](Plan plan) { plan.kept_rows = {5, 5}; }), "");
    EXPECT_NE(fault([](Plan plan) { plan.copy_blocks = {{BlockId{1}, BlockId{9}}}; }), "");
}

TEST(NumElements, RefusesNegativeAndOverflow) {
    EXPECT_EQ(num_elements({2, 3, 4}), 24U);
    EXPECT_EQ(num_elements({}), 1U);
    EXPECT_EQ(num_elements({0, 5}), 0U);
    EXPECT_THROW(num_elements({-1}), Error);
    constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
    EXPECT_THROW(num_elements({kHuge, kHuge}), Error);
}

TEST(PartRange, ReadsWell) {
    EXPECT_EQ(to_string(PartRange{{0, 15}, true, false}), "embed+0-15");
    EXPECT_EQ(to_string(PartRange{{15, 30}, false, false}), "15-30");
    EXPECT_EQ(to_string(PartRange{{30, 30}, false, true}), "head");
    EXPECT_EQ(to_string(PartRange{{0, 0}, true, false}), "embed");
}

}  // namespace
}  // namespace shardline
