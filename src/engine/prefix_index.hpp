#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.hpp"

namespace shardline {

// A block's content together with all that stands before it. Never used twice, so that a child of
// a content that is gone is never found again.
enum class ContentId : std::uint64_t {};

// What stands before a sequence's first block.
inline constexpr ContentId kNothingBefore{0};

// Which blocks hold which tokens. Keys are hashed for speed and compared in full: owner, what
// stands before, and the tokens; so two owners never share, and no collision gives a wrong block.
// Owned by the block manager, called from the engine's thread.
class PrefixIndex final {
public:
    struct Content {
        ContentId id{};
        BlockId block{};
    };

    // `num_blocks`: ids to come are smaller. `hash_mask`: the bits of a hash that count; tests
    // take few, so that contents collide.
    explicit PrefixIndex(std::uint32_t num_blocks, std::uint64_t hash_mask = ~std::uint64_t{0})
        : hash_mask_(hash_mask), entries_(num_blocks) {}

    std::optional<Content> find(std::uint64_t owner, ContentId before,
                                std::span<const std::int64_t> tokens) const;

    // The block must not be held here, its content neither.
    ContentId insert(std::uint64_t owner, ContentId before, std::span<const std::int64_t> tokens,
                     BlockId block);

    bool holds(BlockId block) const { return entries_[to_number(block)].has_value(); }
    void erase(BlockId block);
    void clear();

private:
    std::uint64_t hash_of(std::uint64_t owner, ContentId before,
                          std::span<const std::int64_t> tokens) const;

    struct Entry {
        std::uint64_t owner = 0;
        ContentId before{};
        std::vector<std::int64_t> tokens;
        ContentId id{};
        std::uint64_t hash = 0;
    };

    const std::uint64_t hash_mask_;
    std::vector<std::optional<Entry>> entries_;                // by block
    std::unordered_multimap<std::uint64_t, BlockId> by_hash_;  // as many as there are entries
    std::uint64_t next_id_ = 1;
};

}  // namespace shardline
