// Public fault report openvinotoolkit/openvino.genai#3722 (and waybarrios/vllm-mlx#444) as trials:
// contents whose hashes are equal are told apart.

#include "engine/prefix_index.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "step/step.hpp"

namespace shardline {
namespace {

using Tokens = std::vector<std::int64_t>;

class PrefixIndexCollisions : public testing::TestWithParam<unsigned> {
protected:
    static constexpr std::uint32_t kBlocks = 400;

    PrefixIndexCollisions() : index_(kBlocks, (std::uint64_t{1} << GetParam()) - 1) {}

    BlockId next_block() { return BlockId{++last_block_}; }

    // The block found, or the spare one.
    BlockId found(std::uint64_t owner, ContentId before, const Tokens& tokens) const {
        const auto content = index_.find(owner, before, tokens);
        return content ? content->block : kSpareBlock;
    }

    PrefixIndex index_;
    std::uint32_t last_block_ = 0;
};

TEST_P(PrefixIndexCollisions, IdsThatDifferInHighBitsOnly) {
    Tokens tokens(32);
    std::map<Tokens, BlockId> blocks;
    for (const std::int64_t id : {0LL, 1LL << 8, 1LL << 9, 1LL << 16, 1LL << 17, 1LL << 32}) {
        for (const std::size_t place : {0U, 15U, 31U}) {
            tokens.assign(32, 7);
            tokens[place] += id;
            EXPECT_EQ(found(0, kNothingBefore, tokens),
                      blocks.contains(tokens) ? blocks[tokens] : kSpareBlock);
            if (!blocks.contains(tokens)) {
                blocks[tokens] = next_block();
                index_.insert(0, kNothingBefore, tokens, blocks[tokens]);
            }
        }
    }
    for (const auto& [known, block] : blocks) {
        EXPECT_EQ(found(0, kNothingBefore, known), block);
    }
}

TEST_P(PrefixIndexCollisions, TheSameTokensBehindOthersOrOfAnotherOwner) {
    const Tokens tokens(32, 5);
    const BlockId first = next_block();
    const ContentId content = index_.insert(0, kNothingBefore, tokens, first);
    EXPECT_EQ(found(0, content, tokens), kSpareBlock);
    EXPECT_EQ(found(1, kNothingBefore, tokens), kSpareBlock);
    const BlockId second = next_block();
    const BlockId foreign = next_block();
    index_.insert(0, content, tokens, second);
    index_.insert(1, kNothingBefore, tokens, foreign);
    EXPECT_EQ(found(0, kNothingBefore, tokens), first);
    EXPECT_EQ(found(0, content, tokens), second);
    EXPECT_EQ(found(1, kNothingBefore, tokens), foreign);
}

TEST_P(PrefixIndexCollisions, ManyComeAndGo) {
    using Key = std::tuple<std::uint64_t, ContentId, Tokens>;
    std::mt19937 generator(GetParam());
    std::map<Key, BlockId> known;
    std::vector<BlockId> free;
    std::vector<ContentId> contents = {kNothingBefore};
    for (std::uint32_t id = 1; id < kBlocks; ++id) {
        free.push_back(BlockId{id});
    }
    for (int i = 0; i < 5000; ++i) {
        Tokens tokens(32, 0);
        tokens[generator() % 32] = 256 * (generator() % 4);
        const Key key{generator() % 2, contents[generator() % contents.size()], tokens};
        const auto& [owner, before, asked] = key;
        const auto place = known.find(key);
        ASSERT_EQ(found(owner, before, asked), place == known.end() ? kSpareBlock : place->second);
        if (place == known.end() && !free.empty()) {
            known[key] = free.back();
            contents.push_back(index_.insert(owner, before, asked, free.back()));
            free.pop_back();
        } else if (!known.empty()) {
            const auto victim = std::next(known.begin(), generator() % known.size());
            index_.erase(victim->second);
            free.push_back(victim->second);
            known.erase(victim);
        }
    }
    EXPECT_GT(known.size(), kBlocks / 4);
}

INSTANTIATE_TEST_SUITE_P(HashBits, PrefixIndexCollisions, testing::Values(0U, 4U, 63U));

}  // namespace
}  // namespace shardline
