#include "stage/step_tables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardline {
namespace {

using testing::ElementsAre;

StepPlan two_spans() {
    StepPlan plan;
    plan.spans.push_back({.sequence = SequenceId{1},
                          .past_len = 40,
                          .num_tokens = 3,
                          .block_table = {BlockId{7}, BlockId{4}}});
    plan.spans.push_back(
        {.sequence = SequenceId{2}, .past_len = 0, .num_tokens = 1, .block_table = {BlockId{9}}});
    return plan;
}

TEST(StepTables, AreWhatAPagedGraphReads) {
    StepTables tables;
    tables.fill(two_spans(), 1);
    EXPECT_THAT(tables.past_lens, ElementsAre(40, 0));
    EXPECT_THAT(tables.subsequence_begins, ElementsAre(0, 3, 4));
    EXPECT_THAT(tables.block_indices, ElementsAre(7, 4, 9));
    EXPECT_THAT(tables.block_indices_begins, ElementsAre(0, 2, 3));
    EXPECT_THAT(tables.position_ids, ElementsAre(40, 41, 42, 0));
    EXPECT_EQ(tables.max_context_len, 43);
}

// 43 positions take three device blocks of 16 tokens; the fourth holds nothing yet.
TEST(StepTables, ABlockIsSeveralOfADeviceWithSmallerOnes) {
    StepTables tables;
    tables.fill(two_spans(), 2);
    EXPECT_THAT(tables.block_indices, ElementsAre(14, 15, 8, 18));
    EXPECT_THAT(tables.block_indices_begins, ElementsAre(0, 3, 4));
}

TEST(StepTables, AnEmptySpanAddsNoRowAndNoBlock) {
    StepTables tables;
    tables.fill(two_spans(), 1);
    tables.add_empty_span();
    EXPECT_THAT(tables.past_lens, ElementsAre(40, 0, 0));
    EXPECT_THAT(tables.subsequence_begins, ElementsAre(0, 3, 4, 4));
    EXPECT_THAT(tables.block_indices, ElementsAre(7, 4, 9));
    EXPECT_THAT(tables.block_indices_begins, ElementsAre(0, 2, 3, 3));
    EXPECT_THAT(tables.position_ids, ElementsAre(40, 41, 42, 0));
}

TEST(StepTables, NothingStaysOfTheStepBefore) {
    StepTables tables;
    tables.fill(two_spans(), 1);
    StepPlan second = two_spans();
    second.spans.erase(second.spans.begin());
    tables.fill(second, 1);
    EXPECT_THAT(tables.past_lens, ElementsAre(0));
    EXPECT_THAT(tables.subsequence_begins, ElementsAre(0, 1));
    EXPECT_THAT(tables.block_indices, ElementsAre(9));
    EXPECT_THAT(tables.position_ids, ElementsAre(0));
    EXPECT_EQ(tables.max_context_len, 1);
}

}  // namespace
}  // namespace shardline
