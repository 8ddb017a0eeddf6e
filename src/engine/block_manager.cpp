#include "engine/block_manager.hpp"

#include "base/error.hpp"

namespace shardline {

namespace {

// A prompt is computed in spans of at least two tokens.
constexpr std::size_t kLeastPromptSpan = 2;

std::span<const std::int64_t> block_of(std::span<const std::int64_t> tokens, std::size_t index) {
    return tokens.subspan(index * kBlockTokens, kBlockTokens);
}

}  // namespace

BlockManager::BlockManager(std::uint32_t num_blocks)
    : in_cached_(num_blocks), num_holders_(num_blocks, 0), index_(num_blocks) {
    SHARDLINE_INVARIANT(num_blocks >= 2);
    free_.reserve(num_blocks - 1);
    for (std::uint32_t id = num_blocks - 1; id > to_number(kSpareBlock); --id) {
        free_.push_back(BlockId{id});
    }
}

std::uint32_t BlockManager::blocks_for(std::uint64_t num_positions) {
    return static_cast<std::uint32_t>((num_positions + kBlockTokens - 1) / kBlockTokens);
}

std::uint32_t BlockManager::reuse(SequenceBlocks& sequence, std::uint64_t owner,
                                  std::span<const std::int64_t> prompt) {
    SHARDLINE_INVARIANT(sequence.blocks.empty());
    while ((sequence.blocks.size() + 1) * kBlockTokens + kLeastPromptSpan <= prompt.size()) {
        const auto known =
            index_.find(owner, sequence.last_content, block_of(prompt, sequence.blocks.size()));
        if (!known) {
            break;
        }
        hold(known->block);
        sequence.blocks.push_back(known->block);
        sequence.last_content = known->id;
        ++sequence.num_known;
    }
    return sequence.num_known * kBlockTokens;
}

bool BlockManager::grow(SequenceBlocks& sequence, std::uint64_t num_positions) {
    const std::uint32_t needed = blocks_for(num_positions);
    if (needed > sequence.blocks.size() + num_available()) {
        return false;
    }
    while (sequence.blocks.size() < needed) {
        sequence.blocks.push_back(take());
    }
    return true;
}

void BlockManager::remember(SequenceBlocks& sequence, std::uint64_t owner,
                            std::span<const std::int64_t> computed) {
    const std::size_t num_full = computed.size() / kBlockTokens;
    while (sequence.num_known < num_full) {
        const auto tokens = block_of(computed, sequence.num_known);
        const auto known = index_.find(owner, sequence.last_content, tokens);
        // A fork's block, which the one it forked from made known behind another content.
        if (!known && index_.holds(sequence.blocks[sequence.num_known])) {
            return;
        }
        // Somebody with the same beginning was first: then that block goes on being the known one.
        sequence.last_content = known ? known->id
                                      : index_.insert(owner, sequence.last_content, tokens,
                                                      sequence.blocks[sequence.num_known]);
        ++sequence.num_known;
    }
}

bool BlockManager::fork(const SequenceBlocks& sequence, std::uint64_t num_positions,
                        SequenceBlocks& fork) {
    SHARDLINE_INVARIANT(fork.blocks.empty());
    const std::size_t num_whole = num_positions / kBlockTokens;
    const bool in_part = num_positions % kBlockTokens > 0;
    SHARDLINE_INVARIANT(sequence.blocks.size() >= blocks_for(num_positions));
    SHARDLINE_INVARIANT(sequence.num_known <= num_whole && !sequence.copied_from);
    if (in_part && num_available() == 0) {
        return false;
    }
    fork.num_known = sequence.num_known;
    fork.last_content = sequence.last_content;
    for (std::size_t i = 0; i < num_whole; ++i) {
        hold(sequence.blocks[i]);
        fork.blocks.push_back(sequence.blocks[i]);
    }
    if (in_part) {
        hold(sequence.blocks[num_whole]);
        fork.copied_from = sequence.blocks[num_whole];
        fork.blocks.push_back(take());
    }
    return true;
}

void BlockManager::copied(SequenceBlocks& fork) {
    let_go(*fork.copied_from);
    fork.copied_from.reset();
}

void BlockManager::release(SequenceBlocks& sequence) {
    if (sequence.copied_from) {
        let_go(*sequence.copied_from);
    }
    // The end first, so that it is evicted first: without what stands before it, it is no use.
    for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block) {
        let_go(*block);
    }
    sequence = {};
}

void BlockManager::forget() {
    free_.insert(free_.end(), cached_.begin(), cached_.end());
    cached_.clear();
    index_.clear();
}

BlockId BlockManager::take() {
    if (free_.empty()) {
        const BlockId oldest = cached_.front();
        cached_.pop_front();
        index_.erase(oldest);
        free_.push_back(oldest);
    }
    const BlockId block = free_.back();
    free_.pop_back();
    ++num_holders_[to_number(block)];
    return block;
}

void BlockManager::hold(BlockId block) {
    if (num_holders_[to_number(block)]++ == 0) {
        cached_.erase(in_cached_[to_number(block)]);
    }
}

void BlockManager::let_go(BlockId block) {
    std::uint32_t& holders = num_holders_[to_number(block)];
    SHARDLINE_INVARIANT(holders > 0);
    if (--holders > 0) {
        return;
    }
    if (index_.holds(block)) {
        in_cached_[to_number(block)] = cached_.insert(cached_.end(), block);
    } else {
        free_.push_back(block);
    }
}

void BlockManager::check_integrity(std::span<const SequenceBlocks* const> sequences) const {
    std::vector<std::uint32_t> holders(num_holders_.size(), 0);
    for (const SequenceBlocks* sequence : sequences) {
        SHARDLINE_INVARIANT(sequence->num_known <= sequence->blocks.size());
        for (BlockId block : sequence->blocks) {
            SHARDLINE_INVARIANT(block != kSpareBlock && to_number(block) < holders.size());
            ++holders[to_number(block)];
        }
        if (sequence->copied_from) {
            ++holders[to_number(*sequence->copied_from)];
        }
    }
    SHARDLINE_INVARIANT(holders == num_holders_);
    for (BlockId block : free_) {
        SHARDLINE_INVARIANT(block != kSpareBlock && holders[to_number(block)]++ == 0);
        SHARDLINE_INVARIANT(!index_.holds(block));
    }
    for (BlockId block : cached_) {
        SHARDLINE_INVARIANT(block != kSpareBlock && holders[to_number(block)]++ == 0);
        SHARDLINE_INVARIANT(index_.holds(block));
    }
    for (std::uint32_t id = to_number(kSpareBlock) + 1; id < holders.size(); ++id) {
        SHARDLINE_INVARIANT(holders[id] > 0);
    }
}

}  // namespace shardline
