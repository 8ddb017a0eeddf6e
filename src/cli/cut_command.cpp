#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/model_argument.hpp"
#include "cli/progress.hpp"
#include "cut/cut.hpp"
#include "cut/shard_writer.hpp"
#include "model/model_source.hpp"

namespace shardline {

namespace {

struct CutArguments {
    std::string model;
    std::string directory;
    std::uint32_t stages = 0;
    std::vector<std::uint32_t> at;
    bool json = false;
};

// Ends of the ranges, the last one the number of layers.
std::vector<std::uint32_t> range_ends(const CutArguments& arguments, std::uint32_t num_layers) {
    std::vector<std::uint32_t> ends = arguments.at;
    for (std::uint32_t stage = 1; stage < arguments.stages; ++stage) {
        ends.push_back(num_layers * stage / arguments.stages);
    }
    ends.push_back(num_layers);
    if (!std::is_sorted(ends.begin(), ends.end()) || ends.front() == 0 ||
        std::adjacent_find(ends.begin(), ends.end()) != ends.end()) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("the model has {} layers; cut it between 1 and {}, in ascending "
                                "order, into no more stages than layers",
                                num_layers, num_layers - 1));
    }
    return ends;
}

std::vector<PartRange> ranges_of(const CutArguments& arguments, std::uint32_t num_layers) {
    std::vector<PartRange> ranges;
    std::uint32_t first = 0;
    for (const std::uint32_t last : range_ends(arguments, num_layers)) {
        ranges.push_back({{first, last}, first == 0, last == num_layers});
        first = last;
    }
    return ranges;
}

int run_cut(const CutArguments& arguments) {
    const ModelSource source = ModelSource::open(resolve_model(arguments.model, arguments.json));
    ProgressLine line(arguments.json);
    const std::vector<WrittenShard> shards = write_shards(
        source, ranges_of(arguments, source.info().num_layers), arguments.directory,
        [&line](std::size_t done, std::size_t total) {
            line.update("writing shards", static_cast<double>(done) / static_cast<double>(total));
        });
    line.finish();
    nlohmann::json rows = nlohmann::json::array();
    for (const WrittenShard& shard : shards) {
        rows.push_back({{"directory", shard.directory.string()},
                        {"part", to_string(shard.range)},
                        {"weights_bytes", shard.weights_bytes}});
        if (!arguments.json) {
            fmt::print("{:<14} {:>9.1f} MiB  {}\n", to_string(shard.range),
                       static_cast<double>(shard.weights_bytes) / (1 << 20),
                       shard.directory.string());
        }
    }
    if (arguments.json) {
        fmt::print("{}\n", rows.dump(2));
    }
    return 0;
}

}  // namespace

Command add_cut_command(CLI::App& app) {
    auto arguments = std::make_shared<CutArguments>();
    CLI::App* command =
        app.add_subcommand("cut", "Write standalone shards that plain OpenVINO opens and runs");
    command->footer(R"(
Examples
  shardline cut model --stages 2 -o shards
  shardline cut model --at 10,20 -o shards
Serving needs no such files: there a shard is a view of the model, cut in memory at load.)");
    command->add_option("MODEL", arguments->model, "model directory, .gguf file or `demo`")
        ->required();
    command->add_option("-o,--output", arguments->directory, "directory to write stage-0, ... to")
        ->required();
    auto* how = command->add_option_group("how");
    how->add_option("--stages", arguments->stages, "into N parts of about as many layers")
        ->check(CLI::Range(1, 1024));
    how->add_option("--at", arguments->at, "before these layers, as in 10,20")->delimiter(',');
    how->require_option(1);
    command->add_flag("--json", arguments->json, "print JSON");
    return {command, [arguments] { return run_cut(*arguments); }};
}

}  // namespace shardline
