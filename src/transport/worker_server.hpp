#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "security/credentials.hpp"
#include "stage/stage_loader.hpp"

namespace shardline {

// Makes a stage from a model directory; stage/stage_loader's load_stage in the product.
using StageLoader = std::function<std::unique_ptr<StageExecutor>(
    const StageSpec& spec, const std::filesystem::path& model_directory,
    const LoadProgress& progress)>;

// What a stage will hold in memory; stage_footprint in the product. Without one a worker reports
// no footprint and leaves it to the loader to refuse what does not fit.
using StageSizer = std::function<StageFootprint(const std::filesystem::path& model_directory,
                                                const StageSpec& spec)>;

struct WorkerOptions {
    std::string listen = "0.0.0.0:7411";  // host:port; port 0 takes a free one
    Credentials credentials;
    std::string name;                  // how others call this worker; usually the host's name
    std::string device = "CPU";        // replaces the device of a spec that names none
    std::vector<std::string> devices;  // all of this host, for descriptions
    std::uint64_t memory_bytes =
        0;  // for weights, KV and working memory; 0: no limit but the host's
    std::uint32_t num_threads = 0;          // replaces a spec's 0
    std::filesystem::path model_directory;  // a whole model kept here; empty: none
    std::filesystem::path store_directory;  // where pieces of models are kept; empty: none

    void validate() const;  // throws Error
};

// A worker: listens, hosts at most one stage, serves one coordinator at a time. Mutual TLS always.
// A second coordinator is refused by name; the worker is free again by itself once the first one's
// connection is gone. Nothing a peer sends ends the process.
// Owns the server's threads, the stage and its memory. wait() and shutdown() may be called from
// any threads.
class WorkerServer final {
public:
    // Listens when it returns; throws Error when the address cannot be used.
    WorkerServer(const WorkerOptions& options, StageLoader loader, StageSizer sizer = {});
    ~WorkerServer();  // shuts down

    int port() const;

    // Returns after shutdown().
    void wait();

    // Tells the coordinator, ends all streams, frees the stage. A step being computed is finished.
    void shutdown();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace shardline
