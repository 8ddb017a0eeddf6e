#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace shardline {

// What one host offers. Memory is what a stage may use in all: weights, KV and working memory.
struct WorkerProfile {
    std::string name;  // address, as the user gave it
    std::uint64_t memory_bytes = 0;
    double relative_speed = 1.0;  // layers per second against the others; only ratios count
    std::string processor{};      // equal for workers that take it from each other; empty: its own
};

struct LayerCost {
    std::uint64_t weights_bytes = 0;
    std::uint64_t kv_bytes_per_block = 0;
};

struct PlanInput {
    std::vector<LayerCost> layers;
    std::uint64_t stage_overhead_bytes = 0;  // runtime, activations and shared constants of a stage
    std::uint32_t keep_layers = 0;           // the first ones run on the coordinator
    std::uint32_t min_blocks = 2;            // KV blocks every stage must have room for
    std::vector<WorkerProfile> workers;      // in chain order
};

struct StagePlacement {
    std::string worker;  // empty: the coordinator itself
    LayerRange layers;
    std::uint64_t weights_bytes = 0;
    std::uint64_t free_bytes = 0;  // left for KV blocks
    std::uint32_t blocks_that_fit = 0;
    double load = 0.0;  // weights over speed, 1.0 for the slowest stage
};

struct Placement {
    std::vector<StagePlacement> stages;
    std::uint32_t num_blocks = 0;  // of the stage with least room: the fleet's pool size
};

// Cuts the layers into one contiguous range per worker so that the slowest stage is as fast as
// can be and every stage fits into its memory with at least min_blocks KV blocks. Exact, by
// dynamic programming; pure. Throws Error naming hosts and bytes when nothing fits.
Placement plan_placement(const PlanInput& input);

}  // namespace shardline
