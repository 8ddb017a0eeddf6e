#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "cli/commands.hpp"
#include "cli/fleet_options.hpp"
#include "fleet/fleet_plan.hpp"
#include "fleet/local_worker.hpp"
#include "stage/devices.hpp"
#include "stage/stage_loader.hpp"
#include "transport/worker_client.hpp"
#include "transport/worker_server.hpp"

namespace shardline {

namespace fs = std::filesystem;

namespace {

struct WorkerArguments {
    std::string listen = "0.0.0.0:7411";
    std::string name;
    std::string credentials;
    std::string device = "CPU";
    std::string memory;
    std::string model;
    std::string store;
    std::uint32_t threads = 0;
};

WorkerOptions worker_options(const WorkerArguments& arguments) {
    WorkerOptions options;
    options.listen = arguments.listen;
    options.name = arguments.name.empty() ? host_name() : arguments.name;
    options.credentials = arguments.credentials == "-" ? read_credentials_from_stdin()
                                                       : load_credentials(arguments.credentials);
    options.device = arguments.device;
    for (const DeviceInfo& device : list_devices()) {
        options.devices.push_back(device.name);
    }
    options.memory_bytes =
        arguments.memory.empty() ? default_memory_bytes() : parse_bytes(arguments.memory);
    options.num_threads = arguments.threads;
    options.model_directory = arguments.model;
    options.store_directory =
        arguments.store.empty() ? user_cache_directory() / "shards" : fs::path(arguments.store);
    return options;
}

int run_worker(const WorkerArguments& arguments) {
    const StopSignal stop;
    const WorkerOptions options = worker_options(arguments);
    WorkerServer server(
        options,
        [](const StageSpec& spec, const std::filesystem::path& model_directory,
           const LoadProgress& progress) { return load_stage(model_directory, spec, progress); },
        stage_footprint);
    const std::string host = parse_address(options.listen).host;
    fmt::print("{}\n", listening_line(fmt::format("{}:{}", host, server.port())));
    std::fflush(stdout);
    if (arguments.credentials == "-") {
        watch_stdin_end(request_stop);
    }
    stop.wait();
    server.shutdown();
    return 0;
}

}  // namespace

Command add_worker_command(CLI::App& app) {
    auto arguments = std::make_shared<WorkerArguments>();
    CLI::App* command = app.add_subcommand("worker", "Lend this machine to a fleet");
    command->footer(R"(
Examples
  shardline worker --credentials ~/fleet/pc1
  shardline worker --credentials ~/fleet/pc1 --listen 0.0.0.0:7411 --memory 6GiB --device GPU
The coordinator says which layers to run; weights that are missing here come from it once.)");
    command->add_option("--listen", arguments->listen, "HOST:PORT for coordinator and workers")
        ->capture_default_str();
    command
        ->add_option("--credentials", arguments->credentials,
                     "directory made by `shardline fleet`; - reads them from stdin")
        ->required();
    command->add_option("--name", arguments->name, "how others call this machine [host name]");
    command->add_option("--device", arguments->device, "OpenVINO device: CPU, GPU, NPU")
        ->capture_default_str();
    command->add_option("--memory", arguments->memory,
                        "what a stage may use, as in 6GiB [three quarters of what is free]");
    command->add_option("--threads", arguments->threads, "threads [all cores]");
    command->add_option("--model", arguments->model,
                        "model directory on this machine, used instead of fetching weights");
    command->add_option("--store", arguments->store, "where fetched weights are kept");
    return {command, [arguments] { return run_worker(*arguments); }};
}

}  // namespace shardline
