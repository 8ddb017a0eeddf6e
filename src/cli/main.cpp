#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/platform.hpp"
#include "cli/commands.hpp"
#include "cli/exit_code.hpp"

namespace {

using namespace shardline;

constexpr const char* kFooter = R"(
Examples
  shardline serve demo --local-workers 2          SmolLM2 over two processes on this machine
  shardline generate demo --prompt "Why is the sky blue?"
  shardline import model.gguf -o model            a GGUF file as an OpenVINO model directory
  shardline inspect model                         layers, bytes, what crosses each boundary

MODEL is an OpenVINO model directory, a .gguf file (imported once, kept beside it) or `demo`.

Exit codes
  0 done   1 internal   2 usage   3 not found   4 refused (model, worker, credentials)
  5 out of memory or queue places   6 a worker cannot be reached)";

int run(int argc, char** argv) {
    CLI::App app{"Runs a language model that fits on no single machine over several."};
    app.name("shardline");
    app.footer(kFooter);
    app.set_version_flag("--version", SHARDLINE_VERSION);
    app.require_subcommand(1);
    std::string log_level = "warn";
    app.add_option("--log-level", log_level, "debug, info, warn, error or off")
        ->capture_default_str();
    const std::vector<Command> commands = {
        add_serve_command(app),   add_generate_command(app), add_chat_command(app),
        add_worker_command(app),  add_plan_command(app),     add_import_command(app),
        add_inspect_command(app), add_cut_command(app),      add_bench_command(app),
        add_doctor_command(app),  add_fleet_command(app)};
    for (const Command& command : commands) {
        command.app->fallthrough();
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const int code = app.exit(error);
        return code == 0 ? 0 : kExitUsage;
    }
    set_log_level(log_level);
    for (const Command& command : commands) {
        if (command.app->parsed()) {
            return command.run();
        }
    }
    return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
    share_heaps_among_threads();
    try {
        return run(argc, argv);
    } catch (const Error& error) {
        std::fprintf(stderr, "shardline: %s\n", error.what());
        return exit_code_of(error.code());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "shardline: unexpected: %s\n", error.what());
        return kExitInternal;
    }
}
