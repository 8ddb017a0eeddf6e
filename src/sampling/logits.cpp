#include "sampling/logits.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace shardline {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float maximum(std::span<const float> logits) {
    std::array<float, kLogitLanes> highest;
    highest.fill(-kInfinity);
    std::size_t i = 0;
    for (; i + kLogitLanes <= logits.size(); i += kLogitLanes) {
        for (std::size_t lane = 0; lane < kLogitLanes; ++lane) {
            const float value = logits[i + lane];
            highest[lane] = value > highest[lane] ? value : highest[lane];
        }
    }
    float found = -kInfinity;
    for (; i < logits.size(); ++i) {
        found = logits[i] > found ? logits[i] : found;
    }
    for (float lane : highest) {
        found = std::max(found, lane);
    }
    return found;
}

}  // namespace

LogitScan scan_logits(std::span<const float> logits) {
    LogitScan scan{-kInfinity, -1};
    std::size_t place = 0;
    for (std::size_t begin = 0; begin < logits.size(); begin += kLogitChunk) {
        const float found =
            maximum(logits.subspan(begin, std::min(kLogitChunk, logits.size() - begin)));
        if (found > scan.max) {
            scan.max = found;
            place = begin;
        }
    }
    if (scan.max == -kInfinity) {
        return scan;
    }
    while (logits[place] != scan.max) {
        ++place;
    }
    scan.argmax = static_cast<std::int64_t>(place);
    return scan;
}

void chunk_maxima(std::span<const float> logits, std::size_t chunk, std::vector<float>& maxima) {
    maxima.clear();
    for (std::size_t begin = 0; begin < logits.size(); begin += chunk) {
        maxima.push_back(maximum(logits.subspan(begin, std::min(chunk, logits.size() - begin))));
    }
}

}  // namespace shardline
