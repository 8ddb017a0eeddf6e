#include "cli/commands.hpp"

namespace shardline {

Command add_bench_command(CLI::App& app) {
    CLI::App* bench = app.add_subcommand("bench", "Measure, with ratios taken in one run");
    bench->require_subcommand(1);
    const Command step = add_bench_step_command(*bench);
    const Command serve = add_bench_serve_command(*bench);
    return {bench, [step, serve] { return step.app->parsed() ? step.run() : serve.run(); }};
}

}  // namespace shardline
