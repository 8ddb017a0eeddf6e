#include "shard/range_algebra.hpp"

#include <algorithm>

namespace shardline {

std::vector<ByteRange> merged(std::vector<ByteRange> ranges) {
    std::sort(ranges.begin(), ranges.end(), [](const ByteRange& one, const ByteRange& other) {
        return one.offset < other.offset;
    });
    std::vector<ByteRange> result;
    for (const ByteRange& range : ranges) {
        if (range.size == 0) {
            continue;
        }
        if (result.empty() || range.offset > result.back().end() + kMergeGapBytes) {
            result.push_back(range);
        } else {
            const std::uint64_t end = std::max(result.back().end(), range.end());
            result.back().size = end - result.back().offset;
        }
    }
    return result;
}

std::vector<ByteRange> without(const std::vector<ByteRange>& ranges,
                               const std::vector<ByteRange>& holes) {
    std::vector<ByteRange> result;
    auto hole = holes.begin();
    for (const ByteRange& range : ranges) {
        std::uint64_t start = range.offset;
        while (hole != holes.end() && hole->end() <= start) {
            ++hole;
        }
        // A hole may reach into the next range, so it is looked at again for that one.
        for (auto next = hole; next != holes.end() && next->offset < range.end(); ++next) {
            if (next->offset > start) {
                result.push_back({start, next->offset - start});
            }
            start = std::max(start, next->end());
        }
        if (start < range.end()) {
            result.push_back({start, range.end() - start});
        }
    }
    return result;
}

std::vector<ByteRange> cut_on_grid(const std::vector<ByteRange>& ranges, std::uint64_t grid_bytes) {
    std::vector<ByteRange> pieces;
    for (const ByteRange& range : ranges) {
        for (std::uint64_t start = range.offset; start < range.end();) {
            const std::uint64_t line = (start / grid_bytes + 1) * grid_bytes;
            const std::uint64_t end = std::min(line, range.end());
            pieces.push_back({start, end - start});
            start = end;
        }
    }
    return pieces;
}

std::uint64_t total_bytes(const std::vector<ByteRange>& ranges) {
    std::uint64_t total = 0;
    for (const ByteRange& range : ranges) {
        total += range.size;
    }
    return total;
}

}  // namespace shardline
