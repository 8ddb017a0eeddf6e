#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fleet/fleet_chain.hpp"
#include "fleet/planner.hpp"
#include "model/model_source.hpp"
#include "step/stage_spec.hpp"
#include "transport/worker_client.hpp"

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
};

// Memory this host's processes may use: what the options say, else most of what is free now.
std::uint64_t host_memory_bytes(const FleetOptions& options);

// A worker as the planner sees it. Speed goes by cores until it is measured.
WorkerProfile profile_of(const WorkerDescription& worker, const std::string& address);

// What every stage has in common; range, blocks and device are still to be set.
StageSpec common_spec(const ModelSource& source, const FleetOptions& options);

// Pure but for reading the graph. Throws Error naming hosts and bytes when nothing fits.
FleetPlan plan_fleet(const ModelSource& source, const FleetOptions& options,
                     const std::vector<WorkerProfile>& workers,
                     std::uint64_t coordinator_memory_bytes);

}  // namespace shardline
