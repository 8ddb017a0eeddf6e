#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/platform.hpp"
#include "cli/bench_report.hpp"
#include "cli/commands.hpp"
#include "cli/generation.hpp"
#include "cut/cut.hpp"
#include "model/model_source.hpp"
#include "stage/bare_loop.hpp"
#include "stage/stage_loader.hpp"

namespace shardline {

namespace {

constexpr std::uint32_t kPromptTokens = 100;
constexpr std::uint32_t kBenchContext = 1024;
constexpr std::uint32_t kBenchSequences = 8;
constexpr std::uint64_t kMiB = 1 << 20;

struct BenchStepArguments {
    FleetArguments fleet;
    std::uint32_t rounds = 7;
    std::uint32_t tokens = 64;
    bool json = false;
    bool stages_only = false;
};

// What one side of the comparison did in all rounds.
struct Side {
    std::vector<double> ms_per_token;
    std::vector<MeasuredLink::Row> decode_rows;
};

std::vector<std::int64_t> bench_prompt() {
    std::vector<std::int64_t> ids(kPromptTokens);
    std::iota(ids.begin(), ids.end(), 100);
    return ids;
}

void run_side(Coordinator& coordinator, std::uint32_t tokens, Side& side) {
    coordinator.measured_link()->take_rows();
    const Generation generation = generate(
        coordinator, bench_prompt(), {.sampling = {}, .max_tokens = tokens, .ignore_eos = true},
        [](const std::string&) {}, [] { return false; });
    side.ms_per_token.push_back((generation.total_ms - generation.first_token_ms) /
                                static_cast<double>(tokens - 1));
    for (MeasuredLink::Row& row : coordinator.measured_link()->take_rows()) {
        if (row.rows == 1) {  // a decode step of one stream
            side.decode_rows.push_back(std::move(row));
        }
    }
}

// Median over rounds of (yardstick / side): speeds compared pair by pair, so that a machine that
// slows down for a while does so for both.
double speed_ratio(const std::vector<double>& yardstick_ms, const std::vector<double>& side_ms) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < side_ms.size(); ++i) {
        ratios.push_back(yardstick_ms[i] / side_ms[i]);
    }
    return median(ratios);
}

BenchRow speed_row(const std::string& name, const Side& side) {
    return {.name = name,
            .value = 1000.0 / median(side.ms_per_token),
            .unit = "tok/s",
            .yardstick = "",
            .ratio = std::nullopt,
            .target = std::nullopt};
}

// What a step took beyond the stages' own execution, spread over the hops between processes.
BenchRow hop_row(const Side& split, std::size_t num_hops) {
    std::vector<double> beyond;
    for (const MeasuredLink::Row& row : split.decode_rows) {
        double execute_ms = 0.0;
        for (const StageTiming& timing : row.timings) {
            execute_ms += timing.execute_us / 1000.0;
        }
        beyond.push_back((row.total_ms - execute_ms) / static_cast<double>(num_hops));
    }
    BenchRow result{.name = "per hop beyond compute",
                    .value = median(beyond),
                    .unit = "ms",
                    .yardstick = "",
                    .ratio = std::nullopt,
                    .target = 0.4};
    result.at_most = true;
    return result;
}

// Weights as they are in the file: what the device's kernels add to them is part of what is judged.
std::uint64_t weights_in_file(const LayerMap& map, const PartRange& range) {
    const auto first = map.layer_weights_bytes.begin();
    return std::accumulate(first + range.layers.first, first + range.layers.last, map.shared_bytes);
}

void add_memory_rows(Coordinator& split, std::vector<BenchRow>& rows) {
    const LayerMap map = map_layers(ModelSource::open(split.model_directory()).read_graph());
    for (const StageDescription& stage : split.chain().stages()) {
        if (stage.pid == own_pid() || stage.pid == 0) {
            continue;
        }
        const std::uint64_t pool =
            stage_footprint(split.model_directory(), stage.spec).kv_bytes_per_block *
            stage.spec.num_blocks;
        const double held = static_cast<double>(process_memory(stage.pid).anonymous_bytes) / kMiB;
        const double allowed =
            1.25 * static_cast<double>(weights_in_file(map, stage.spec.range) + pool) / kMiB + 150;
        BenchRow row{.name = fmt::format("memory of worker {}", to_string(stage.spec.range)),
                     .value = held,
                     .unit = "MiB",
                     .yardstick = fmt::format("{:.0f} MiB allowed", allowed),
                     .ratio = held / allowed,
                     .target = 1.0};
        row.at_most = true;
        rows.push_back(row);
    }
}

struct StageTable {
    std::vector<std::vector<double>> execute_ms;
    std::vector<double> bytes_in;
};

StageTable by_stage(const Side& side, std::size_t num_stages) {
    StageTable table{std::vector<std::vector<double>>(num_stages),
                     std::vector<double>(num_stages, 0.0)};
    for (const MeasuredLink::Row& row : side.decode_rows) {
        for (const StageTiming& timing : row.timings) {
            if (timing.stage < num_stages) {
                table.execute_ms[timing.stage].push_back(timing.execute_us / 1000.0);
                table.bytes_in[timing.stage] = static_cast<double>(timing.bytes_in);
            }
        }
    }
    return table;
}

void print_stages(Coordinator& split, const Side& side, const Side& whole) {
    const std::vector<StageDescription> stages = split.chain().stages();
    const StageTable table = by_stage(side, stages.size());
    fmt::print("{:<5} {:<10} {:<28} {:<7} {:>8} {:>13}\n", "stage", "layers", "where", "device",
               "ms/step", "bytes per hop");
    for (std::size_t i = 0; i < stages.size(); ++i) {
        fmt::print("{:<5} {:<10} {:<28} {:<7} {:>8.2f} {:>13.0f}\n", i,
                   to_string(stages[i].spec.range), stages[i].where,
                   stages[i].spec.device.empty() ? "CPU" : stages[i].spec.device,
                   median(table.execute_ms[i]), table.bytes_in[i]);
    }
    fmt::print("\n{:.1f} tok/s over the chain, {:.1f} unsplit in one process: {:.2f} x\n",
               1000.0 / median(side.ms_per_token), 1000.0 / median(whole.ms_per_token),
               speed_ratio(whole.ms_per_token, side.ms_per_token));
}

int run_bench_step(BenchStepArguments arguments) {
    arguments.fleet.context = kBenchContext;
    arguments.fleet.max_sequences = kBenchSequences;
    if (arguments.fleet.local_workers == 0 && arguments.fleet.workers.empty()) {
        arguments.fleet.local_workers = 2;
    }
    FleetArguments alone = arguments.fleet;
    alone.local_workers = 0;
    alone.workers.clear();
    alone.keep_layers = 0;
    Coordinator whole(alone, arguments.json, true);
    Coordinator split(arguments.fleet, arguments.json, true);
    StageSpec spec = whole.chain().stages().front().spec;
    BareLoop bare(whole.model_directory(), spec);
    Side bare_side;
    Side whole_side;
    Side split_side;
    for (std::uint32_t round = 0; round < arguments.rounds + 1; ++round) {
        if (round == 1) {  // the first was the warm-up
            bare_side = whole_side = split_side = {};
        }
        bare_side.ms_per_token.push_back(bare.run(kPromptTokens, arguments.tokens));
        run_side(whole, arguments.tokens, whole_side);
        run_side(split, arguments.tokens, split_side);
    }
    if (arguments.stages_only) {
        print_stages(split, split_side, whole_side);
        return 0;
    }
    std::vector<BenchRow> rows = {speed_row("bare OpenVINO infer loop", bare_side)};
    rows.push_back(speed_row("one process", whole_side));
    rows.back().yardstick = "bare loop";
    rows.back().ratio = speed_ratio(bare_side.ms_per_token, whole_side.ms_per_token);
    rows.back().target = 0.97;
    rows.push_back(speed_row("over the workers", split_side));
    rows.back().yardstick = "one process";
    rows.back().ratio = speed_ratio(whole_side.ms_per_token, split_side.ms_per_token);
    rows.back().target = 0.93;
    rows.push_back(hop_row(split_side, split.chain().stages().size() - 1));
    BenchRow own{.name = "coordinator's own work per step",
                 .value = split.engine().stats().schedule_ms_per_step,
                 .unit = "ms",
                 .yardstick = "",
                 .ratio = std::nullopt,
                 .target = 0.3};
    own.at_most = true;
    rows.push_back(own);
    add_memory_rows(split, rows);
    if (!arguments.json) {
        print_stages(split, split_side, whole_side);
        fmt::print("\n");
    }
    print_bench(rows, arguments.json);
    return 0;
}

}  // namespace

Command add_bench_step_command(CLI::App& bench) {
    auto arguments = std::make_shared<BenchStepArguments>();
    CLI::App* command = bench.add_subcommand(
        "step", "Decode speed of one stream: bare OpenVINO, one process, over workers");
    command->footer(R"(
Examples
  shardline bench step demo
  shardline bench step model --workers pc1:7411,pc2:7411 --credentials ~/fleet/me --json)");
    add_fleet_options(*command, arguments->fleet);
    command->add_option("--rounds", arguments->rounds, "interleaved rounds; medians are printed")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    command->add_option("--tokens", arguments->tokens, "tokens per side and round")
        ->check(CLI::Range(8, 512))
        ->capture_default_str();
    command->add_flag("--stages", arguments->stages_only, "print the table of stages only");
    command->add_flag("--json", arguments->json, "print rows as JSON");
    return {command, [arguments] { return run_bench_step(*arguments); }};
}

}  // namespace shardline
