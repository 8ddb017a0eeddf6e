#include "fleet/fleet_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "stage/stage_loader.hpp"
#include "transport/worker_client.hpp"

namespace shardline {

namespace {

// A model that does not say how long a sequence may be gets this much.
constexpr std::uint32_t kDefaultContext = 4096;

std::uint32_t context_of(const ModelInfo& info, const FleetOptions& options) {
    const std::uint32_t own = info.context_length > 0 ? info.context_length : kDefaultContext;
    if (options.max_context > own && info.context_length > 0) {
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("--context {} is longer than the model's {}", options.max_context, own));
    }
    return options.max_context > 0 ? options.max_context : own;
}

// More blocks than all sequences at their longest could use would only be address space.
std::uint32_t useful_blocks(const FleetOptions& options, std::uint32_t max_context) {
    const std::uint64_t per_sequence = (max_context + kBlockTokens - 1) / kBlockTokens;
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(per_sequence * options.max_sequences + 1, 1U << 24));
}

std::uint32_t blocks_for(const ModelSource& source, const FleetOptions& options,
                         const StageSpec& spec, std::uint64_t memory_bytes) {
    constexpr std::uint64_t kMinBlocks = 2;  // the spare one and one to work with
    const StageFootprint footprint = stage_footprint(source.directory(), spec);
    const std::uint32_t fit = blocks_that_fit(footprint, memory_bytes);
    if (options.kv_cache_bytes == 0 || footprint.kv_bytes_per_block == 0) {
        return fit;
    }
    const std::uint64_t wanted = options.kv_cache_bytes / footprint.kv_bytes_per_block;
    if (wanted < kMinBlocks) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("--kv-cache of {} bytes is less than the two KV blocks of {} bytes "
                                "that a stage of {} layers needs; give at least {} bytes",
                                options.kv_cache_bytes, footprint.kv_bytes_per_block,
                                spec.range.layers.last - spec.range.layers.first,
                                kMinBlocks * footprint.kv_bytes_per_block));
    }
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, fit));
}

PlanInput plan_input(const ModelSource& source, const FleetOptions& options, const StageSpec& spec,
                     const std::vector<WorkerProfile>& workers) {
    PlanInput input;
    const ModelFootprint footprint = model_footprint(source.directory(), spec);
    for (std::uint32_t layer = 0; layer < source.info().num_layers; ++layer) {
        input.layers.push_back({.weights_bytes = footprint.layer_weights_bytes[layer],
                                .kv_bytes_per_block = footprint.layer_kv_bytes_per_block[layer]});
    }
    input.stage_overhead_bytes = footprint.stage_overhead_bytes;
    input.keep_layers = options.keep_layers;
    input.workers = workers;
    return input;
}

FleetPlan plan_one_process(const ModelSource& source, const FleetOptions& options, FleetPlan plan,
                           std::uint64_t memory_bytes) {
    plan.first.range = {{0, source.info().num_layers}, true, true};
    plan.num_blocks = std::min(blocks_for(source, options, plan.first, memory_bytes),
                               useful_blocks(options, plan.max_context));
    plan.first.num_blocks = plan.num_blocks;
    return plan;
}

std::string processor_name(const std::string& machine, const std::string& device) {
    return machine.empty() ? std::string() : fmt::format("{}/{}", machine, device);
}

// Two steps at a time on one processor read all weights twice for the rows of one, and their
// threads wait for each other: 4 streams over two workers on the same cores got half the tokens.
// Not so where each worker was given cores of its own.
std::uint32_t count_processors(const FleetOptions& options,
                               const std::vector<WorkerProfile>& workers) {
    const std::uint64_t num_local = options.local_workers + (options.keep_layers > 0 ? 1U : 0U);
    const bool own_cores =
        options.num_threads > 0 && options.num_threads * num_local <= num_cores();
    std::set<std::string> shared;
    std::uint32_t count = 0;
    const auto add = [&](const std::string& processor, bool own) {
        count += own || processor.empty() || shared.insert(processor).second ? 1 : 0;
    };
    for (const WorkerProfile& worker : workers) {
        add(worker.processor, options.local_workers > 0 && own_cores);
    }
    if (options.keep_layers > 0) {
        add(processor_name(shared_cores_id(), options.device), own_cores);
    }
    return count;
}

}  // namespace

std::uint64_t default_memory_bytes() {
    return available_memory_bytes() / 4 * 3;
}

std::uint64_t host_memory_bytes(const FleetOptions& options) {
    return options.memory_bytes > 0 ? options.memory_bytes : default_memory_bytes();
}

std::uint64_t process_memory_bytes(const FleetOptions& options) {
    return host_memory_bytes(options) / (options.local_workers + 1);
}

std::vector<WorkerProfile> describe_workers(const std::vector<std::string>& addresses,
                                            const Credentials& credentials) {
    std::vector<WorkerProfile> profiles;
    for (const std::string& address : addresses) {
        const WorkerDescription worker = describe_worker(address, credentials, kDescribeTimeout);
        profiles.push_back({.name = fmt::format("{} ({})", worker.name, address),
                            .memory_bytes = worker.memory_limit_bytes > 0
                                                ? worker.memory_limit_bytes
                                                : worker.memory_available_bytes,
                            .relative_speed = static_cast<double>(std::max(1U, worker.num_cores)),
                            .processor = processor_name(worker.machine, worker.device)});
    }
    return profiles;
}

StageSpec common_spec(const ModelSource& source, const FleetOptions& options) {
    StageSpec spec;
    spec.model_name = source.info().name;
    spec.fingerprint = source.fingerprint();
    spec.numeric = options.numeric;
    spec.device = options.device;
    spec.num_threads = options.num_threads;
    spec.max_rows = options.max_step_tokens;
    spec.max_context = context_of(source.info(), options);
    return spec;
}

FleetPlan plan_fleet(const ModelSource& source, const FleetOptions& options,
                     const std::vector<WorkerProfile>& workers,
                     std::uint64_t coordinator_memory_bytes) {
    const StageSpec common = common_spec(source, options);
    FleetPlan plan;
    plan.max_context = common.max_context;
    plan.first = common;
    if (workers.empty()) {
        return plan_one_process(source, options, plan, coordinator_memory_bytes);
    }
    plan.placement = plan_placement(plan_input(source, options, common, workers));
    plan.first.range = {{0, options.keep_layers}, true, false};
    plan.num_blocks = std::min(
        {plan.placement.num_blocks, useful_blocks(options, plan.max_context),
         options.keep_layers > 0 ? blocks_for(source, options, plan.first, coordinator_memory_bytes)
                                 : plan.placement.num_blocks});
    for (const StagePlacement& stage : plan.placement.stages) {
        StageSpec spec = common;
        spec.range = {stage.layers, false, false};
        spec.device.clear();  // each worker runs on its own device
        plan.remote.push_back(spec);
    }
    plan.remote.back().keeps_rows = true;
    // The placement shared out by layer; what a worker will really need, it computes itself.
    for (std::size_t i = 0; i < plan.remote.size(); ++i) {
        plan.num_blocks = std::min(
            plan.num_blocks, blocks_for(source, options, plan.remote[i], workers[i].memory_bytes));
    }
    plan.first.num_blocks = plan.num_blocks;
    for (StageSpec& spec : plan.remote) {
        spec.num_blocks = plan.num_blocks;
    }
    plan.num_processors = count_processors(options, workers);
    StageSpec head = common;
    const std::uint32_t num_layers = source.info().num_layers;
    head.range = {{num_layers, num_layers}, false, true};
    head.num_blocks = plan.num_blocks;
    plan.last.push_back(head);
    return plan;
}

}  // namespace shardline
