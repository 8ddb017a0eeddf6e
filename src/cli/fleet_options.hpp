#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "fleet/fleet_chain.hpp"

namespace shardline {

// The flags that say where a model runs, the same on every command that runs one.
struct FleetArguments {
    std::string model;
    std::string workers;  // "a:7411,b:7411"
    std::uint32_t local_workers = 0;
    std::uint32_t keep_layers = 0;
    std::string credentials;  // directory; needed with --workers
    std::string memory;       // "6GiB"; empty: what is free, less a margin
    std::string kv_cache;     // "512MiB"; empty: what is useful and fits
    std::string device = "CPU";
    std::uint32_t threads = 0;
    std::uint32_t context = 0;
    std::string kv_precision = "u8";
    std::optional<std::uint32_t> dynamic_quantization;  // else by the model's weights
    std::uint32_t max_sequences = 64;                   // no flag: the benches lower it
    bool reuse_answers = false;                         // see EngineOptions
    std::string trace;                                  // file; empty: none
};

void add_fleet_options(CLI::App& app, FleetArguments& arguments);

// --trace, for the commands that run one engine.
void add_trace_option(CLI::App& app, FleetArguments& arguments);

// Checks and translates; `directory` is the resolved MODEL. Throws Error naming the flag.
FleetOptions to_fleet_options(const FleetArguments& arguments,
                              const std::filesystem::path& directory);

// "pc1:7411,pc2:7411". Throws Error naming an item that is not HOST:PORT.
std::vector<std::string> split_addresses(const std::string& text);

// "6GiB", "512MiB", "2G", plain bytes. Throws Error naming the text.
std::uint64_t parse_bytes(const std::string& text);

}  // namespace shardline
