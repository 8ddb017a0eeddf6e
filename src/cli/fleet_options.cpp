#include "cli/fleet_options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "base/error.hpp"
#include "stage/numeric_choice.hpp"
#include "transport/worker_client.hpp"

namespace shardline {

std::vector<std::string> split_addresses(const std::string& text) {
    std::vector<std::string> addresses;
    std::istringstream stream(text);
    std::string address;
    while (std::getline(stream, address, ',')) {
        parse_address(address);  // refuses what is not HOST:PORT
        addresses.push_back(address);
    }
    return addresses;
}

std::uint64_t parse_bytes(const std::string& text) {
    double number = 0.0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    std::string unit(end, text.data() + text.size());
    if (unit.size() > 1 && unit.back() == 'B') {
        unit = unit.substr(0, unit.find_first_of("iB"));
    }
    double scale = 0.0;
    if (unit.empty()) {
        scale = 1.0;
    } else if (unit == "K") {
        scale = 1024.0;
    } else if (unit == "M") {
        scale = 1024.0 * 1024;
    } else if (unit == "G") {
        scale = 1024.0 * 1024 * 1024;
    }
    const double bytes = number * scale;
    if (status != std::errc() || scale == 0.0 || !(bytes >= 1.0) || bytes > 1e15) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' is no amount of memory; write it as 6GiB or 512MiB", text));
    }
    return static_cast<std::uint64_t>(bytes);
}

void add_fleet_options(CLI::App& app, FleetArguments& arguments) {
    app.add_option("MODEL", arguments.model,
                   "model directory, .gguf file or `demo` (SmolLM2, fetched once)")
        ->required();
    auto* workers =
        app.add_option("--workers", arguments.workers,
                       "HOST:PORT,HOST:PORT... in chain order (see `shardline worker`)");
    app.add_option("--local-workers", arguments.local_workers,
                   "start N worker processes on this machine instead")
        ->excludes(workers)
        ->check(CLI::Range(1, 16));
    app.add_option("--keep-layers", arguments.keep_layers,
                   "run the first N layers in this process");
    app.add_option("--credentials", arguments.credentials,
                   "directory made by `shardline fleet`; needed with --workers");
    app.add_option("--memory", arguments.memory,
                   "what this machine's processes may use, as in 6GiB [most of what is free]");
    app.add_option("--kv-cache", arguments.kv_cache,
                   "most memory each process gives to KV blocks, as in 512MiB [what all requests "
                   "at their longest need, if it fits]");
    app.add_option("--device", arguments.device, "OpenVINO device of this machine's stages")
        ->capture_default_str();
    app.add_option("--threads", arguments.threads, "threads per process [all cores]");
    app.add_option("--context", arguments.context,
                   "longest sequence in tokens [the model's own limit]");
    app.add_option("--kv-precision", arguments.kv_precision, "u8, f16 or f32: the whole fleet's")
        ->check(CLI::IsMember({"u8", "f16", "f32"}))
        ->capture_default_str();
    app.add_option("--dynamic-quantization", arguments.dynamic_quantization,
                   "values per scale of int8 activations [32, or 16 where the model's weights "
                   "have a scale per 16]; 0: none, slower and closest to f32");
}

void add_trace_option(CLI::App& app, FleetArguments& arguments) {
    app.add_option("--trace", arguments.trace,
                   "write a timeline of stages and steps to this file, 1 GiB at most, for "
                   "ui.perfetto.dev");
}

FleetOptions to_fleet_options(const FleetArguments& arguments,
                              const std::filesystem::path& directory) {
    FleetOptions options;
    options.model_directory = directory;
    options.workers = split_addresses(arguments.workers);
    options.local_workers = arguments.local_workers;
    options.keep_layers = arguments.keep_layers;
    options.numeric = numeric_settings_for(directory);
    options.numeric.kv_cache_precision = arguments.kv_precision;
    if (arguments.dynamic_quantization) {
        options.numeric.dynamic_quantization_group = *arguments.dynamic_quantization;
    }
    options.device = arguments.device;
    options.num_threads = arguments.threads;
    options.memory_bytes = arguments.memory.empty() ? 0 : parse_bytes(arguments.memory);
    options.kv_cache_bytes = arguments.kv_cache.empty() ? 0 : parse_bytes(arguments.kv_cache);
    options.max_context = arguments.context;
    options.max_sequences = arguments.max_sequences;
    if (!arguments.credentials.empty()) {
        options.credentials = load_credentials(arguments.credentials);
    }
    if (!options.workers.empty() && !options.credentials.has_value()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "--workers needs --credentials DIR; make one for every machine with `shardline "
                    "fleet`");
    }
    options.validate();
    return options;
}

}  // namespace shardline
