#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "step/stage_executor.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// Called while a stage loads: what is being done and how far it is (0 to 1).
using LoadProgress = std::function<void(const char* phase, double fraction)>;

// What a stage will hold in memory, computed from the graph without compiling it. Pages of the
// weights file that are mapped while loading are not counted: the system drops them when memory is
// short. Loading needs no more than the sum of all (measured on the CPU), so this is the peak too.
struct StageFootprint {
    std::uint64_t weights_bytes = 0;  // as the device keeps them: packed, half precision widened
    std::uint64_t kv_bytes_per_block = 0;
    std::uint64_t activation_bytes = 0;  // working memory of one step of max_rows rows
    std::uint64_t reserve_bytes = 0;     // the runtime itself
};

StageFootprint stage_footprint(const std::filesystem::path& model_directory, const StageSpec& spec);

// Blocks that fit into memory_bytes beside weights, activations and reserve; throws Error that
// names all of them when not even two do.
std::uint32_t blocks_that_fit(const StageFootprint& footprint, std::uint64_t memory_bytes);

// What a placement is made from: the cost of each layer, and of being a stage at all.
struct ModelFootprint {
    std::vector<std::uint64_t> layer_weights_bytes;
    std::vector<std::uint64_t> layer_kv_bytes_per_block;
    std::uint64_t stage_overhead_bytes = 0;  // runtime, working memory, constants of all layers
};

// `spec` gives precision and step size; its range is ignored. Compiles nothing.
ModelFootprint model_footprint(const std::filesystem::path& model_directory, const StageSpec& spec);

// Opens the model, cuts out the range, compiles it, allocates the pool and runs one warm-up step.
// Throws Error when the files are not those of spec.fingerprint, when the device cannot honour
// spec.numeric, or when spec.num_blocks do not fit.
std::unique_ptr<StageExecutor> load_stage(const std::filesystem::path& model_directory,
                                          const StageSpec& spec, const LoadProgress& progress);

}  // namespace shardline
