#include "engine/prefix_index.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace shardline {

std::uint64_t PrefixIndex::hash_of(std::uint64_t owner, ContentId before,
                                   std::span<const std::int64_t> tokens) const {
    constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15ULL;
    std::uint64_t hash = owner * kFactor ^ to_number(before);
    for (const std::int64_t token : tokens) {
        hash = (hash ^ static_cast<std::uint64_t>(token)) * kFactor;
        hash ^= hash >> 29;
    }
    return hash & hash_mask_;
}

std::optional<PrefixIndex::Content> PrefixIndex::find(std::uint64_t owner, ContentId before,
                                                      std::span<const std::int64_t> tokens) const {
    const auto [first, last] = by_hash_.equal_range(hash_of(owner, before, tokens));
    for (auto place = first; place != last; ++place) {
        const Entry& entry = *entries_[to_number(place->second)];
        if (entry.owner == owner && entry.before == before &&
            std::equal(tokens.begin(), tokens.end(), entry.tokens.begin(), entry.tokens.end())) {
            return Content{entry.id, place->second};
        }
    }
    return std::nullopt;
}

ContentId PrefixIndex::insert(std::uint64_t owner, ContentId before,
                              std::span<const std::int64_t> tokens, BlockId block) {
    std::optional<Entry>& entry = entries_[to_number(block)];
    SHARDLINE_INVARIANT(!entry.has_value());
    const std::uint64_t hash = hash_of(owner, before, tokens);
    entry = Entry{owner, before, {tokens.begin(), tokens.end()}, ContentId{next_id_++}, hash};
    by_hash_.emplace(hash, block);
    return entry->id;
}

void PrefixIndex::erase(BlockId block) {
    std::optional<Entry>& entry = entries_[to_number(block)];
    if (!entry) {
        return;
    }
    auto [place, last] = by_hash_.equal_range(entry->hash);
    while (place != last && place->second != block) {
        ++place;
    }
    SHARDLINE_INVARIANT(place != last);
    by_hash_.erase(place);
    entry.reset();
}

void PrefixIndex::clear() {
    by_hash_.clear();
    std::fill(entries_.begin(), entries_.end(), std::nullopt);
}

}  // namespace shardline
