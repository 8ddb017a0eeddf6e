#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shardline {

// Passes over a whole row of logits (50k to 250k floats), written in fixed lanes so that the
// compiler vectorises them and the order of every sum is the same on every machine.

inline constexpr std::size_t kLogitLanes = 16;
inline constexpr std::size_t kLogitChunk = 512;  // a multiple of kLogitLanes

// A NaN never wins a comparison here, so it counts as absent.
struct LogitScan {
    float max = 0.0F;         // -infinity when no logit is a number above it
    std::int64_t argmax = 0;  // lowest id among equal maxima; -1 when there is none
};

LogitScan scan_logits(std::span<const float> logits);

// Maximum of each chunk of `chunk` logits, the last one may be shorter.
void chunk_maxima(std::span<const float> logits, std::size_t chunk, std::vector<float>& maxima);

// weights[i] = exp((logits[i] - max) * scale), 0 where that is below 2^-125 or not a number.
// Own arithmetic rather than std::exp: the same bits whatever the C library or the CPU.
void softmax_weights(std::span<const float> logits, float max, float scale,
                     std::vector<float>& weights);

double sum_weights(std::span<const float> weights);

// Sets to 0 every weight below `least`, and those equal to it that stand after place `last_equal`.
void drop_light_weights(std::span<float> weights, float least, std::size_t last_equal);

}  // namespace shardline
