#include "stage/stage_loader.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/pages.hpp"
#include "base/platform.hpp"
#include "cut/cut.hpp"
#include "model/model_source.hpp"
#include "stage/footprint.hpp"
#include "stage/paged_executor.hpp"

namespace shardline {

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

void check_spec(const StageSpec& spec) {
    const auto refuse = [&](const std::string& why) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("part {} of {}: {}", to_string(spec.range), spec.model_name, why));
    };
    if (spec.range.layers.first > spec.range.layers.last || to_string(spec.range).empty()) {
        refuse("the range is empty");
    }
    if (spec.num_blocks < 2) {
        refuse("a KV pool needs two blocks or more, one of them spare");
    }
    if (spec.max_rows == 0 || spec.max_context == 0) {
        refuse("a step needs room for a row and a context");
    }
}

void check_fingerprint(const ModelSource& source, const StageSpec& spec) {
    if (source.fingerprint() != spec.fingerprint) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("{} is another model than the fleet serves as {}: graph {:.12} and "
                                "{} bytes of weights here, {:.12} and {} there",
                                source.directory().string(), spec.model_name,
                                source.fingerprint().xml_sha256, source.fingerprint().bin_bytes,
                                spec.fingerprint.xml_sha256, spec.fingerprint.bin_bytes));
    }
}

void check_memory(const StageFootprint& footprint, const StageSpec& spec) {
    const std::uint64_t fixed =
        footprint.weights_bytes + footprint.activation_bytes + footprint.reserve_bytes;
    const std::uint64_t pool = footprint.kv_bytes_per_block * spec.num_blocks;
    const std::uint64_t available = available_memory_bytes();
    if (fixed + pool > available) {
        throw Error(ErrorCode::kResourceExhausted,
                    fmt::format("part {} of {} needs {} MiB (weights {}, KV {}, working memory and "
                                "runtime {}), only {} MiB are free on {}",
                                to_string(spec.range), spec.model_name, (fixed + pool) / kMiB,
                                footprint.weights_bytes / kMiB, pool / kMiB,
                                (footprint.activation_bytes + footprint.reserve_bytes) / kMiB,
                                available / kMiB, host_name()));
    }
}

}  // namespace

std::unique_ptr<StageExecutor> load_stage(const std::filesystem::path& model_directory,
                                          const StageSpec& spec, const LoadProgress& progress) {
    check_spec(spec);
    progress("open", 0.0);
    const ModelSource source = ModelSource::open(model_directory);
    check_fingerprint(source, spec);
    progress("cut", 0.1);
    std::shared_ptr<ov::Model> part = cut_part(source.read_graph(), spec.range);
    make_paged(part, spec.range);
    check_memory(part_footprint(*part, spec), spec);
    auto executor = make_paged_executor(std::move(part), spec, progress);
    release_unused_heap();
    room_logger("stage")->info("part {} of {} is loaded: {}", to_string(spec.range),
                               spec.model_name, to_string(executor->effective_settings()));
    progress("ready", 1.0);
    return executor;
}

}  // namespace shardline
