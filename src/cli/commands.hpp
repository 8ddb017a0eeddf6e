#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace shardline {

// A subcommand as main() sees it: what parses its options, and what runs it. The exit code is
// returned; failures are thrown as Error and become exit codes in main().
struct Command {
    CLI::App* app = nullptr;
    std::function<int()> run;
};

Command add_import_command(CLI::App& app);
Command add_inspect_command(CLI::App& app);
Command add_cut_command(CLI::App& app);
Command add_worker_command(CLI::App& app);
Command add_plan_command(CLI::App& app);
Command add_serve_command(CLI::App& app);
Command add_generate_command(CLI::App& app);
Command add_chat_command(CLI::App& app);
Command add_bench_command(CLI::App& app);
Command add_bench_step_command(CLI::App& bench);
Command add_bench_serve_command(CLI::App& bench);
Command add_bench_engine_command(CLI::App& bench);
Command add_doctor_command(CLI::App& app);
Command add_fleet_command(CLI::App& app);

}  // namespace shardline
