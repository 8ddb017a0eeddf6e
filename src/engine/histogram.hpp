#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace shardline {

// How many values fell at or below each of some bounds, and their sum: what percentiles over time
// can be told from. Plain data, copied with the stats it is part of.
template <std::size_t kNumBounds>
struct Histogram {
    std::array<double, kNumBounds> bounds{};             // ascending
    std::array<std::uint64_t, kNumBounds + 1> counts{};  // per range; the last is beyond all bounds
    double sum = 0.0;

    void add(double value) {
        const auto place = std::lower_bound(bounds.begin(), bounds.end(), value);
        ++counts[static_cast<std::size_t>(place - bounds.begin())];
        sum += value;
    }
};

}  // namespace shardline
