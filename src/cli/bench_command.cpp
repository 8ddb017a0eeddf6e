#include "cli/commands.hpp"

namespace shardline {

Command add_bench_command(CLI::App& app) {
    CLI::App* bench = app.add_subcommand("bench", "Measure, with ratios taken in one run");
    bench->require_subcommand(1);
    const Command step = add_bench_step_command(*bench);
    const Command serve = add_bench_serve_command(*bench);
    const Command engine = add_bench_engine_command(*bench);
    return {bench, [step, serve, engine] {
                const Command& parsed = step.app->parsed()    ? step
                                        : serve.app->parsed() ? serve
                                                              : engine;
                return parsed.run();
            }};
}

}  // namespace shardline
