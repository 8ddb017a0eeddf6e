#include "engine/block_manager.hpp"

#include <gtest/gtest.h>

#include <set>

namespace shardline {
namespace {

TEST(BlockManager, HandsOutEveryBlockOnceButTheSpareOne) {
    BlockManager manager(10);
    SequenceBlocks sequence;
    ASSERT_TRUE(manager.promise(sequence, 9 * kBlockTokens));
    manager.grow(sequence, 9 * kBlockTokens);
    const std::set<BlockId> ids(sequence.blocks.begin(), sequence.blocks.end());
    EXPECT_EQ(ids.size(), 9U);
    EXPECT_EQ(ids.count(kSpareBlock), 0U);
    EXPECT_EQ(*ids.rbegin(), BlockId{9});
    EXPECT_EQ(manager.num_used(), 9U);
}

TEST(BlockManager, BlocksAreTakenWhenPositionsAreComputed) {
    BlockManager manager(10);
    SequenceBlocks sequence;
    ASSERT_TRUE(manager.promise(sequence, 100));
    EXPECT_EQ(manager.num_used(), 0U);
    manager.grow(sequence, 32);
    EXPECT_EQ(sequence.blocks.size(), 1U);
    manager.grow(sequence, 33);
    EXPECT_EQ(sequence.blocks.size(), 2U);
    manager.grow(sequence, 10);  // a step made again asks for what is there
    EXPECT_EQ(sequence.blocks.size(), 2U);
    manager.grow(sequence, 100);
    EXPECT_EQ(sequence.blocks.size(), 4U);
    EXPECT_EQ(sequence.num_promised, 0U);
}

TEST(BlockManager, PromisesAreCountedAgainstWhatIsFree) {
    BlockManager manager(10);
    SequenceBlocks first;
    SequenceBlocks second;
    SequenceBlocks third;
    ASSERT_TRUE(manager.promise(first, 5 * kBlockTokens));
    manager.grow(first, 2 * kBlockTokens);
    EXPECT_FALSE(manager.promise(second, 4 * kBlockTokens + 1));
    EXPECT_EQ(second.num_promised, 0U);
    ASSERT_TRUE(manager.promise(second, 4 * kBlockTokens));
    EXPECT_FALSE(manager.promise(third, 1));
    const SequenceBlocks* all[] = {&first, &second, &third};
    manager.check_integrity(all);
    manager.release(first);
    EXPECT_TRUE(manager.promise(third, 5 * kBlockTokens));
    manager.check_integrity(all);
    manager.release(second);
    manager.release(third);
    EXPECT_EQ(manager.num_used(), 0U);
    manager.check_integrity(all);
}

TEST(BlockManagerDeathTest, CheckIntegrityCatchesWhatItPromises) {
    BlockManager manager(10);
    SequenceBlocks first;
    SequenceBlocks second;
    ASSERT_TRUE(manager.promise(first, 40));
    ASSERT_TRUE(manager.promise(second, 40));
    manager.grow(first, 40);
    manager.grow(second, 40);
    const SequenceBlocks* all[] = {&first, &second};
    const SequenceBlocks* one[] = {&first};
    EXPECT_DEATH(manager.check_integrity(one), "invariant broken");  // a leak
    std::swap(first.blocks[0], first.blocks[1]);
    manager.check_integrity(all);
    const BlockId own = first.blocks[0];
    first.blocks[0] = second.blocks[0];
    EXPECT_DEATH(manager.check_integrity(all), "invariant broken");  // held twice
    first.blocks[0] = own;
    first.num_promised = 1;
    EXPECT_DEATH(manager.check_integrity(all), "invariant broken");
}

TEST(BlockManagerDeathTest, GrowingBeyondThePromiseIsOurBug) {
    BlockManager manager(10);
    SequenceBlocks sequence;
    ASSERT_TRUE(manager.promise(sequence, 32));
    EXPECT_DEATH(manager.grow(sequence, 33), "invariant broken");
}

}  // namespace
}  // namespace shardline
