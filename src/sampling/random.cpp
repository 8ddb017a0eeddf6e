#include "sampling/random.hpp"

namespace shardline {

namespace {

// The finaliser of SplitMix64: a bijection in which every input bit moves every output bit.
std::uint64_t mix(std::uint64_t value) {
    value ^= value >> 30;
    value *= 0xbf58476d1ce4e5b9U;
    value ^= value >> 27;
    value *= 0x94d049bb133111ebU;
    value ^= value >> 31;
    return value;
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15U;

}  // namespace

double uniform_at(std::uint64_t seed, std::uint64_t position) {
    // The seed is mixed before the position joins it: seeds 1, 2, 3 and positions 1, 2, 3 must not
    // meet on the same counter.
    const std::uint64_t stream = mix(seed + kGolden);
    const std::uint64_t bits = mix(mix(stream + (position + 1) * kGolden) ^ stream);
    return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace shardline
