#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "step/step.hpp"

namespace shardline {

// The blocks of one sequence. `blocks[i]` holds positions [32*i, 32*i + 32); `num_promised` counts
// the blocks it may still ask for. Changed by the BlockManager only.
struct SequenceBlocks {
    std::vector<BlockId> blocks;
    std::uint32_t num_promised = 0;
};

// Which KV blocks are in use, on every stage alike: ids 1 to num_blocks-1 (block 0 is
// kSpareBlock). Promises are counts, not blocks: a sequence that was let in can always finish,
// while blocks are taken only when positions in them are about to be computed.
// Owned by the scheduler, called from the engine's thread.
class BlockManager final {
public:
    explicit BlockManager(std::uint32_t num_blocks);

    static std::uint32_t blocks_for(std::uint64_t num_positions);

    // Promises blocks for `num_positions` to a sequence that has none; false when too many are
    // in use or promised already.
    bool promise(SequenceBlocks& sequence, std::uint64_t num_positions);

    // Takes blocks, within the promise, until `num_positions` have a place.
    void grow(SequenceBlocks& sequence, std::uint64_t num_positions);

    // Gives back blocks and promise.
    void release(SequenceBlocks& sequence);

    std::uint32_t num_total() const { return static_cast<std::uint32_t>(num_holders_.size()) - 1; }
    std::uint32_t num_used() const { return num_total() - num_free(); }

    // Aborts unless every block is either free or held, as often as counted, by `sequences`
    // (all there are), and every promise can be kept.
    void check_integrity(std::span<const SequenceBlocks* const> sequences) const;

private:
    std::uint32_t num_free() const { return static_cast<std::uint32_t>(free_.size()); }

    std::vector<BlockId> free_;               // taken from the back
    std::vector<std::uint32_t> num_holders_;  // by block id
    std::uint32_t num_promised_ = 0;          // sum over all sequences
};

}  // namespace shardline
