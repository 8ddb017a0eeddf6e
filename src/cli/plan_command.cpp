#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/fleet_options.hpp"
#include "cli/model_argument.hpp"
#include "fleet/fleet_plan.hpp"

namespace shardline {

namespace {

struct PlanArguments {
    FleetArguments fleet;
    bool json = false;
};

std::vector<WorkerProfile> profiles_of(const FleetOptions& options) {
    if (!options.workers.empty()) {
        return describe_workers(options.workers, *options.credentials);
    }
    std::vector<WorkerProfile> profiles;
    for (std::uint32_t i = 0; i < options.local_workers; ++i) {
        WorkerProfile profile;
        profile.name = fmt::format("local worker {}", i + 1);
        profile.memory_bytes = process_memory_bytes(options);
        profiles.push_back(std::move(profile));
    }
    return profiles;
}

double gib(std::uint64_t bytes) {
    return static_cast<double>(bytes) / (1U << 30);
}

// Splitting pays only when one machine cannot hold the model; people should hear it before they
// wire three laptops together.
std::string advice(const ModelSource& source, const FleetOptions& options, bool split) {
    if (!split) {
        return "";
    }
    const std::uint64_t needed = source.info().weights_bytes * 5 / 4;
    if (needed > host_memory_bytes(options)) {
        return "";
    }
    return fmt::format(
        "the whole model ({:.2f} GiB with room for KV) fits into this machine's {:.2f} GiB: for "
        "one user it would be faster without workers",
        gib(needed), gib(host_memory_bytes(options)));
}

nlohmann::json to_json(const FleetPlan& plan, const std::string& warning) {
    nlohmann::json stages = nlohmann::json::array();
    for (const StagePlacement& stage : plan.placement.stages) {
        stages.push_back({{"worker", stage.worker},
                          {"first_layer", stage.layers.first},
                          {"last_layer", stage.layers.last},
                          {"weights_bytes", stage.weights_bytes},
                          {"blocks_that_fit", stage.blocks_that_fit},
                          {"load", stage.load}});
    }
    return {{"coordinator", to_string(plan.first.range)},
            {"workers", stages},
            {"num_blocks", plan.num_blocks},
            {"max_context", plan.max_context},
            {"warning", warning}};
}

void print_table(const FleetPlan& plan, const std::string& warning) {
    fmt::print("{:<28} {:<12} {:>10} {:>12} {:>6}\n", "where", "part", "weights", "KV blocks",
               "load");
    fmt::print("{:<28} {:<12}\n", "this process", to_string(plan.first.range));
    for (const StagePlacement& stage : plan.placement.stages) {
        fmt::print("{:<28} {:<12} {:>6.2f} GiB {:>12} {:>5.0f}%\n", stage.worker,
                   fmt::format("{}-{}", stage.layers.first, stage.layers.last),
                   gib(stage.weights_bytes), stage.blocks_that_fit, stage.load * 100.0);
    }
    for (const StageSpec& spec : plan.last) {
        fmt::print("{:<28} {:<12}\n", "this process", to_string(spec.range));
    }
    fmt::print(
        "\n{} KV blocks of {} tokens on every stage (the one with least room decides); one "
        "sequence holds up to {} tokens.\nEach worker holds one range of layers, cut so that the "
        "slowest stage is as quick as can be.\n",
        plan.num_blocks, kBlockTokens, plan.max_context);
    if (!warning.empty()) {
        fmt::print("Note: {}.\n", warning);
    }
}

int run_plan(const PlanArguments& arguments) {
    const std::filesystem::path directory = resolve_model(arguments.fleet.model, arguments.json);
    const FleetOptions options = to_fleet_options(arguments.fleet, directory);
    const ModelSource source = ModelSource::open(directory);
    const FleetPlan plan =
        plan_fleet(source, options, profiles_of(options), process_memory_bytes(options));
    const std::string warning = advice(source, options, !plan.remote.empty());
    if (arguments.json) {
        fmt::print("{}\n", to_json(plan, warning).dump(2));
    } else {
        print_table(plan, warning);
    }
    return 0;
}

}  // namespace

Command add_plan_command(CLI::App& app) {
    auto arguments = std::make_shared<PlanArguments>();
    CLI::App* command =
        app.add_subcommand("plan", "Show which layers would run where, without loading anything");
    command->footer(R"(
Examples
  shardline plan model --workers pc1:7411,pc2:7411 --credentials ~/fleet/me
  shardline plan demo --local-workers 3 --json)");
    add_fleet_options(*command, arguments->fleet);
    command->add_flag("--json", arguments->json, "print JSON");
    return {command, [arguments] { return run_plan(*arguments); }};
}

}  // namespace shardline
