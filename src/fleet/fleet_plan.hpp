#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fleet/fleet_chain.hpp"
#include "fleet/planner.hpp"
#include "model/model_source.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// A chain on paper: what runs before the workers, on each of them, and after. With no workers the
// whole model is `first` and there is no `last`.
struct FleetPlan {
    StageSpec first;
    std::vector<StageSpec> remote;
    std::vector<StageSpec> last;  // empty or one
    Placement placement;          // of the workers; no stages when there are none
    std::uint32_t num_blocks = 0;
    std::uint32_t max_context = 0;
    std::uint32_t num_processors = 1;  // that compute layers; as many steps at a time keep all busy
};

// What a program may take of this host's memory unless told: a quarter of what is free now stays
// for whoever sits at the machine.
std::uint64_t default_memory_bytes();

// Memory this host's processes may use together: what the options say, else the default.
std::uint64_t host_memory_bytes(const FleetOptions& options);

// Of that, what each of them may: the coordinator and every local worker.
std::uint64_t process_memory_bytes(const FleetOptions& options);

// Asks the workers and tells how the planner sees them, in the same order. Speed goes by cores
// until it is measured. Throws Error naming the first that cannot be used.
std::vector<WorkerProfile> describe_workers(const std::vector<std::string>& addresses,
                                            const Credentials& credentials);

// What every stage has in common; range, blocks and device are still to be set.
StageSpec common_spec(const ModelSource& source, const FleetOptions& options);

// Pure but for reading the graph. Throws Error naming hosts and bytes when nothing fits, or when
// kv_cache_bytes do not hold two blocks of some stage.
FleetPlan plan_fleet(const ModelSource& source, const FleetOptions& options,
                     const std::vector<WorkerProfile>& workers,
                     std::uint64_t coordinator_memory_bytes);

}  // namespace shardline
