#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "engine/prefix_index.hpp"
#include "step/step.hpp"

namespace shardline {

// The blocks of one sequence. `blocks[i]` holds positions [32*i, 32*i + 32). Changed by the
// BlockManager only.
struct SequenceBlocks {
    std::vector<BlockId> blocks;
    std::uint32_t num_known = 0;              // leading blocks whose content is in the index
    ContentId last_content = kNothingBefore;  // of the last of those
    // Before the next token is computed, the last block gets the content of this one, which is held
    // until then.
    std::optional<BlockId> copied_from;
};

// Which KV blocks are in use, on every stage alike: ids 1 to num_blocks-1 (block 0 is
// kSpareBlock). A block is
//
//     free ── grow() ──► held by one sequence or, with reuse(), by several
//      ▲                   │ release() of the last one
//      ├── content unknown ┘
//      └── evicted ◄── cached: content known, held by nobody; the least recently used goes first
//
// The scheduler makes only whole blocks of prompts known, unless told otherwise: the KV of an
// answer's token differs in bits from that of the same token in a prompt (docs/decisions, rule 3).
// Workers hear nothing of any of this.
// Owned by the scheduler, called from the engine's thread.
class BlockManager final {
public:
    explicit BlockManager(std::uint32_t num_blocks);

    static std::uint32_t blocks_for(std::uint64_t num_positions);

    // Gives a sequence that has no blocks those that hold the beginning of `prompt` already, but
    // never so much that fewer than two tokens are left to compute. Gives the number of tokens.
    std::uint32_t reuse(SequenceBlocks& sequence, std::uint64_t owner,
                        std::span<const std::int64_t> prompt);

    // Takes blocks until `num_positions` have a place; false, and nothing taken, when there are
    // not enough that are free or cached.
    bool grow(SequenceBlocks& sequence, std::uint64_t num_positions);

    // The blocks that `computed`, the beginning of the sequence's tokens, fills: from now on
    // others with the same beginning and owner may have them. Their steps have come back.
    void remember(SequenceBlocks& sequence, std::uint64_t owner,
                  std::span<const std::int64_t> computed);

    // Gives `fork`, which has no blocks, the content of the first `num_positions` of a sequence:
    // whole blocks are shared, of one in part it gets a copy. False, and nothing taken, when there
    // is no block for that.
    bool fork(const SequenceBlocks& sequence, std::uint64_t num_positions, SequenceBlocks& fork);

    // The copy is on its way to the stages, ahead of whatever the source is used for next.
    void copied(SequenceBlocks& fork);

    // Gives back all of its blocks; the known ones stay cached.
    void release(SequenceBlocks& sequence);

    // The stages have lost their KV: nothing is known any more.
    void forget();

    std::uint32_t num_total() const { return static_cast<std::uint32_t>(num_holders_.size()) - 1; }
    std::uint32_t num_used() const { return num_total() - num_available(); }
    std::uint32_t num_cached() const { return static_cast<std::uint32_t>(cached_.size()); }
    std::uint32_t num_available() const {
        return static_cast<std::uint32_t>(free_.size() + cached_.size());
    }

    // Aborts unless every block is either free, cached or held, as often as counted, by
    // `sequences` (all there are).
    void check_integrity(std::span<const SequenceBlocks* const> sequences) const;

private:
    BlockId take();
    void hold(BlockId block);
    void let_go(BlockId block);

    std::vector<BlockId> free_;                            // taken from the back
    std::list<BlockId> cached_;                            // the least recently used first
    std::vector<std::list<BlockId>::iterator> in_cached_;  // by block id, of cached ones
    std::vector<std::uint32_t> num_holders_;               // by block id
    PrefixIndex index_;
};

}  // namespace shardline
