#include "engine/block_manager.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace shardline {
namespace {

using testing::ElementsAreArray;

constexpr std::uint64_t kOwner = 1;

std::vector<std::int64_t> counting(std::size_t count, std::int64_t first = 0) {
    std::vector<std::int64_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

// As a sequence with this prompt does from beginning to end.
std::vector<BlockId> compute(BlockManager& manager, const std::vector<std::int64_t>& prompt,
                             std::uint64_t owner = kOwner) {
    SequenceBlocks sequence;
    manager.reuse(sequence, owner, prompt);
    EXPECT_TRUE(manager.grow(sequence, prompt.size()));
    manager.remember(sequence, owner, prompt);
    std::vector<BlockId> blocks = sequence.blocks;
    manager.release(sequence);
    return blocks;
}

TEST(BlockManager, HandsOutEveryBlockOnceButTheSpareOne) {
    BlockManager manager(10);
    SequenceBlocks sequence;
    ASSERT_TRUE(manager.grow(sequence, 9 * kBlockTokens));
    const std::set<BlockId> ids(sequence.blocks.begin(), sequence.blocks.end());
    EXPECT_EQ(ids.size(), 9U);
    EXPECT_EQ(ids.count(kSpareBlock), 0U);
    EXPECT_EQ(*ids.rbegin(), BlockId{9});
    EXPECT_EQ(manager.num_used(), 9U);
}

TEST(BlockManager, GrowsByWholeBlocksOrNotAtAll) {
    BlockManager manager(5);
    SequenceBlocks sequence;
    ASSERT_TRUE(manager.grow(sequence, 32));
    EXPECT_EQ(sequence.blocks.size(), 1U);
    ASSERT_TRUE(manager.grow(sequence, 33));
    EXPECT_EQ(sequence.blocks.size(), 2U);
    ASSERT_TRUE(manager.grow(sequence, 10));  // a step made again asks for what is there
    EXPECT_EQ(sequence.blocks.size(), 2U);
    EXPECT_FALSE(manager.grow(sequence, 4 * kBlockTokens + 1));
    EXPECT_EQ(sequence.blocks.size(), 2U);
    EXPECT_EQ(manager.num_available(), 2U);
    ASSERT_TRUE(manager.grow(sequence, 4 * kBlockTokens));
    EXPECT_EQ(manager.num_available(), 0U);
}

TEST(BlockManager, TheSameBeginningIsFoundAgain) {
    BlockManager manager(20);
    const std::vector<BlockId> first = compute(manager, counting(100));
    EXPECT_EQ(manager.num_used(), 0U);
    EXPECT_EQ(manager.num_cached(), 3U) << "the fourth block is not full";
    SequenceBlocks second;
    EXPECT_EQ(manager.reuse(second, kOwner, counting(200)), 96U);
    EXPECT_THAT(second.blocks, ElementsAreArray(first.begin(), first.begin() + 3));
    SequenceBlocks third;  // shared by two that run at the same time
    EXPECT_EQ(manager.reuse(third, kOwner, counting(70)), 64U);
    EXPECT_EQ(manager.num_used(), 3U);
    const SequenceBlocks* all[] = {&second, &third};
    manager.check_integrity(all);
    manager.release(second);
    EXPECT_EQ(manager.num_used(), 2U);
    manager.release(third);
    EXPECT_EQ(manager.num_cached(), 3U);
}

// A prompt runs in spans of at least two tokens, so that many must be left.
TEST(BlockManager, AtLeastTwoTokensAreLeftToCompute) {
    BlockManager manager(20);
    compute(manager, counting(100));
    for (const auto& [length, reused] :
         {std::pair{98U, 96U}, std::pair{97U, 64U}, std::pair{96U, 64U}, std::pair{34U, 32U},
          std::pair{33U, 0U}, std::pair{1U, 0U}}) {
        SequenceBlocks sequence;
        EXPECT_EQ(manager.reuse(sequence, kOwner, counting(length)), reused) << length;
        manager.release(sequence);
    }
}

TEST(BlockManager, NothingIsSharedThatIsNotTheSame) {
    BlockManager manager(20);
    compute(manager, counting(100));
    SequenceBlocks sequence;
    EXPECT_EQ(manager.reuse(sequence, kOwner + 1, counting(100)), 0U) << "of another owner";
    EXPECT_EQ(manager.reuse(sequence, kOwner, counting(100, 1)), 0U);
    std::vector<std::int64_t> other = counting(100);
    other[40] = 0;
    EXPECT_EQ(manager.reuse(sequence, kOwner, other), 32U);
    manager.release(sequence);
    // The same 32 tokens behind others.
    std::vector<std::int64_t> shifted = counting(32, 500);
    const std::vector<std::int64_t> beginning = counting(64);
    shifted.insert(shifted.end(), beginning.begin(), beginning.end());
    EXPECT_EQ(manager.reuse(sequence, kOwner, shifted), 0U);
}

TEST(BlockManager, TwoThatComputeTheSameKeepOne) {
    BlockManager manager(20);
    SequenceBlocks one;
    SequenceBlocks two;
    const std::vector<std::int64_t> prompt = counting(96);
    ASSERT_TRUE(manager.grow(one, 96));
    ASSERT_TRUE(manager.grow(two, 96));
    manager.remember(two, kOwner, std::span(prompt).first(40));
    manager.remember(one, kOwner, prompt);
    manager.remember(two, kOwner, prompt);
    manager.release(one);
    manager.release(two);
    EXPECT_EQ(manager.num_cached(), 3U);
    EXPECT_EQ(manager.num_available(), 19U);
    manager.check_integrity({});
    SequenceBlocks three;
    EXPECT_EQ(manager.reuse(three, kOwner, counting(100)), 96U);
}

TEST(BlockManager, TheLeastRecentlyUsedGoesFirstAndEndsBeforeBeginnings) {
    BlockManager manager(10);
    compute(manager, counting(4 * 32));        // four blocks
    compute(manager, counting(4 * 32, 1000));  // four more
    SequenceBlocks touch;
    EXPECT_EQ(manager.reuse(touch, kOwner, counting(200)), 128U);
    manager.release(touch);
    SequenceBlocks large;
    ASSERT_TRUE(manager.grow(large, 3 * 32));  // the free one and two cached
    SequenceBlocks again;
    EXPECT_EQ(manager.reuse(again, kOwner, counting(200, 1000)), 64U);
    manager.release(again);
    EXPECT_EQ(manager.reuse(again, kOwner, counting(200)), 128U);
    const SequenceBlocks* all[] = {&large, &again};
    manager.check_integrity(all);
}

TEST(BlockManager, ForgetsWhenStagesLoseTheirKv) {
    BlockManager manager(10);
    compute(manager, counting(100));
    SequenceBlocks running;
    EXPECT_EQ(manager.reuse(running, kOwner, counting(100)), 96U);
    manager.forget();
    SequenceBlocks other;
    EXPECT_EQ(manager.reuse(other, kOwner, counting(100)), 0U);
    manager.release(running);
    EXPECT_EQ(manager.num_cached(), 0U);
    EXPECT_EQ(manager.num_available(), 9U);
    manager.check_integrity({});
}

TEST(BlockManagerDeathTest, CheckIntegrityCatchesLeaksAndDoubles) {
    BlockManager manager(10);
    SequenceBlocks first;
    SequenceBlocks second;
    ASSERT_TRUE(manager.grow(first, 40));
    ASSERT_TRUE(manager.grow(second, 40));
    const SequenceBlocks* all[] = {&first, &second};
    const SequenceBlocks* one[] = {&first};
    EXPECT_DEATH(manager.check_integrity(one), "invariant broken");  // a leak
    std::swap(first.blocks[0], first.blocks[1]);
    manager.check_integrity(all);
    first.blocks[0] = second.blocks[0];
    EXPECT_DEATH(manager.check_integrity(all), "invariant broken");  // held twice
}

}  // namespace
}  // namespace shardline
