#pragma once

#include <cstdint>

namespace shardline {

// A number in [0, 1) that depends on `seed` and `position` alone, with 53 random bits. Counters
// instead of a running generator: a draw is the same whatever else runs in the batch, however often
// the sequence was recomputed, and whether or not the positions before it were drawn.
double uniform_at(std::uint64_t seed, std::uint64_t position);

}  // namespace shardline
