#include "engine/block_manager.hpp"

#include "base/error.hpp"

namespace shardline {

BlockManager::BlockManager(std::uint32_t num_blocks) : num_holders_(num_blocks, 0) {
    SHARDLINE_INVARIANT(num_blocks >= 2);
    free_.reserve(num_blocks - 1);
    for (std::uint32_t id = num_blocks - 1; id > to_number(kSpareBlock); --id) {
        free_.push_back(BlockId{id});
    }
}

std::uint32_t BlockManager::blocks_for(std::uint64_t num_positions) {
    return static_cast<std::uint32_t>((num_positions + kBlockTokens - 1) / kBlockTokens);
}

bool BlockManager::promise(SequenceBlocks& sequence, std::uint64_t num_positions) {
    SHARDLINE_INVARIANT(sequence.blocks.empty() && sequence.num_promised == 0);
    const std::uint32_t needed = blocks_for(num_positions);
    if (needed > num_free() - num_promised_) {
        return false;
    }
    sequence.num_promised = needed;
    num_promised_ += needed;
    return true;
}

void BlockManager::grow(SequenceBlocks& sequence, std::uint64_t num_positions) {
    const std::uint32_t needed = blocks_for(num_positions);
    while (sequence.blocks.size() < needed) {
        SHARDLINE_INVARIANT(sequence.num_promised > 0 && !free_.empty());
        const BlockId block = free_.back();
        free_.pop_back();
        ++num_holders_[to_number(block)];
        sequence.blocks.push_back(block);
        --sequence.num_promised;
        --num_promised_;
    }
}

void BlockManager::release(SequenceBlocks& sequence) {
    for (BlockId block : sequence.blocks) {
        std::uint32_t& holders = num_holders_[to_number(block)];
        SHARDLINE_INVARIANT(holders > 0);
        if (--holders == 0) {
            free_.push_back(block);
        }
    }
    num_promised_ -= sequence.num_promised;
    sequence = {};
}

void BlockManager::check_integrity(std::span<const SequenceBlocks* const> sequences) const {
    std::vector<std::uint32_t> holders(num_holders_.size(), 0);
    std::uint32_t promised = 0;
    for (const SequenceBlocks* sequence : sequences) {
        for (BlockId block : sequence->blocks) {
            SHARDLINE_INVARIANT(block != kSpareBlock && to_number(block) < holders.size());
            ++holders[to_number(block)];
        }
        promised += sequence->num_promised;
    }
    SHARDLINE_INVARIANT(holders == num_holders_);
    SHARDLINE_INVARIANT(promised == num_promised_ && promised <= num_free());
    for (BlockId block : free_) {
        SHARDLINE_INVARIANT(block != kSpareBlock && holders[to_number(block)]++ == 0);
    }
    for (std::uint32_t id = to_number(kSpareBlock) + 1; id < holders.size(); ++id) {
        SHARDLINE_INVARIANT(holders[id] > 0);
    }
}

}  // namespace shardline
