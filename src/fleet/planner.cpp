#include "fleet/planner.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Sums over layers [first, last) in constant time.
class LayerSums final {
public:
    explicit LayerSums(const std::vector<LayerCost>& layers) : weights_{0}, kv_{0} {
        for (const LayerCost& layer : layers) {
            weights_.push_back(weights_.back() + layer.weights_bytes);
            kv_.push_back(kv_.back() + layer.kv_bytes_per_block);
        }
    }

    std::uint64_t weights(LayerRange range) const {
        return weights_[range.last] - weights_[range.first];
    }
    std::uint64_t kv_per_block(LayerRange range) const {
        return kv_[range.last] - kv_[range.first];
    }

private:
    std::vector<std::uint64_t> weights_;
    std::vector<std::uint64_t> kv_;
};

std::uint64_t needed_bytes(const PlanInput& input, const LayerSums& sums, LayerRange range) {
    return sums.weights(range) + input.stage_overhead_bytes +
           sums.kv_per_block(range) * input.min_blocks;
}

double stage_cost(const PlanInput& input, const LayerSums& sums, const WorkerProfile& worker,
                  LayerRange range) {
    if (needed_bytes(input, sums, range) > worker.memory_bytes) {
        return kNever;
    }
    return static_cast<double>(sums.weights(range)) / worker.relative_speed;
}

StagePlacement describe_stage(const PlanInput& input, const LayerSums& sums,
                              const WorkerProfile& worker, LayerRange range) {
    StagePlacement stage;
    stage.worker = worker.name;
    stage.layers = range;
    stage.weights_bytes = sums.weights(range);
    stage.free_bytes = worker.memory_bytes - sums.weights(range) - input.stage_overhead_bytes;
    const std::uint64_t per_block = std::max<std::uint64_t>(1, sums.kv_per_block(range));
    stage.blocks_that_fit =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(stage.free_bytes / per_block, 1U << 30));
    stage.load = stage_cost(input, sums, worker, range);
    return stage;
}

[[noreturn]] void refuse(const PlanInput& input, const LayerSums& sums) {
    const auto num_layers = static_cast<std::uint32_t>(input.layers.size());
    const LayerRange all{input.keep_layers, num_layers};
    std::string hosts;
    for (const WorkerProfile& worker : input.workers) {
        hosts += fmt::format("{}{} {:.2f} GiB", hosts.empty() ? "" : ", ", worker.name,
                             static_cast<double>(worker.memory_bytes) / (1U << 30));
    }
    throw Error(
        ErrorCode::kResourceExhausted,
        fmt::format(
            "layers {}-{} need {:.2f} GiB with {} KV blocks (plus {:.2f} GiB per stage), "
            "which fits in no split over {}; add a worker, give more --memory or keep "
            "fewer tokens of context",
            all.first, all.last,
            static_cast<double>(sums.weights(all) + sums.kv_per_block(all) * input.min_blocks) /
                (1U << 30),
            input.min_blocks, static_cast<double>(input.stage_overhead_bytes) / (1U << 30), hosts));
}

void check(const PlanInput& input) {
    const std::size_t left =
        input.layers.size() - std::min<std::size_t>(input.layers.size(), input.keep_layers);
    if (input.workers.empty()) {
        throw Error(ErrorCode::kInvalidArgument, "a placement needs at least one worker");
    }
    if (left < input.workers.size()) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{} workers cannot share {} layers; name fewer workers or keep "
                                "fewer layers",
                                input.workers.size(), left));
    }
    for (const WorkerProfile& worker : input.workers) {
        if (!(worker.relative_speed > 0.0)) {
            throw Error(ErrorCode::kInvalidArgument,
                        fmt::format("worker {} has no speed", worker.name));
        }
    }
}

// best[w][l]: smallest cost of the slowest stage when workers 0..w-1 hold layers keep..l-1.
std::vector<LayerRange> best_ranges(const PlanInput& input, const LayerSums& sums) {
    const auto num_layers = static_cast<std::uint32_t>(input.layers.size());
    const std::size_t num_workers = input.workers.size();
    std::vector<std::vector<double>> best(num_workers + 1,
                                          std::vector<double>(num_layers + 1, kNever));
    std::vector<std::vector<std::uint32_t>> from(num_workers + 1,
                                                 std::vector<std::uint32_t>(num_layers + 1, 0));
    best[0][input.keep_layers] = 0.0;
    for (std::size_t worker = 1; worker <= num_workers; ++worker) {
        for (std::uint32_t last = input.keep_layers + 1; last <= num_layers; ++last) {
            for (std::uint32_t first = input.keep_layers; first < last; ++first) {
                const double cost =
                    std::max(best[worker - 1][first],
                             stage_cost(input, sums, input.workers[worker - 1], {first, last}));
                if (cost < best[worker][last]) {
                    best[worker][last] = cost;
                    from[worker][last] = first;
                }
            }
        }
    }
    if (best[num_workers][num_layers] == kNever) {
        refuse(input, sums);
    }
    std::vector<LayerRange> ranges(num_workers);
    std::uint32_t last = num_layers;
    for (std::size_t worker = num_workers; worker > 0; --worker) {
        ranges[worker - 1] = {from[worker][last], last};
        last = from[worker][last];
    }
    return ranges;
}

}  // namespace

Placement plan_placement(const PlanInput& input) {
    check(input);
    const LayerSums sums(input.layers);
    const std::vector<LayerRange> ranges = best_ranges(input, sums);
    Placement placement;
    placement.num_blocks = std::numeric_limits<std::uint32_t>::max();
    double slowest = 0.0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        placement.stages.push_back(describe_stage(input, sums, input.workers[i], ranges[i]));
        placement.num_blocks =
            std::min(placement.num_blocks, placement.stages.back().blocks_that_fit);
        slowest = std::max(slowest, placement.stages.back().load);
    }
    for (StagePlacement& stage : placement.stages) {
        stage.load = slowest > 0.0 ? stage.load / slowest : 1.0;
    }
    return placement;
}

}  // namespace shardline
