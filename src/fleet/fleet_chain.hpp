#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/model_info.hpp"
#include "security/credentials.hpp"
#include "step/stage_link.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// Where a model runs. Neither workers nor local_workers: everything in this process.
struct FleetOptions {
    std::filesystem::path model_directory;
    std::vector<std::string> workers;        // host:port, in chain order
    std::uint32_t local_workers = 0;         // instead: so many child processes on this host
    std::uint32_t keep_layers = 0;           // the first layers run in this process
    std::optional<Credentials> credentials;  // for `workers`; local ones get theirs on the fly
    NumericSettings numeric;
    std::string device = "CPU";
    std::uint32_t num_threads = 0;   // per process; 0: all cores
    std::uint64_t memory_bytes = 0;  // for this host's processes together; 0: most of what is free
    std::uint64_t kv_cache_bytes = 0;  // most for the KV blocks of each stage; 0: what is useful
    std::uint32_t max_context = 0;     // tokens per sequence; 0: the model's own
    std::uint32_t max_step_tokens = 512;
    std::uint32_t max_sequences = 64;

    void validate() const;
};

// One stage of the running chain, for tables and logs.
struct StageDescription {
    std::string where;  // "this process", "local worker 1 (pid 4711)", "host:7411"
    int pid = 0;        // of a process on this host, else 0
    StageSpec spec;
};

// Who is loading (a stage's place), what, and how far (0 to 1). Called from several threads, one
// at a time.
using FleetProgress =
    std::function<void(const std::string& where, const std::string& phase, double fraction)>;

// A whole chain as the engine sees it, and the one who keeps it whole: places the layers, starts
// local workers, loads every stage, and when a worker is lost tells the listener and sets the
// chain up anew (same placement) as soon as all workers can be reached again.
// Owns the local stages, the child processes and the connections. send() and cancel() belong to
// the engine thread; the rest to whoever composed it.
class FleetChain final : public StageLink {
public:
    // Places, starts and loads everything; throws Error naming the worker and the remedy.
    static std::unique_ptr<FleetChain> open(const FleetOptions& options,
                                            const FleetProgress& progress);
    ~FleetChain() override;

    // From here on the listener hears of the chain: chain_up first. It must outlive stop().
    void start(ChainListener& listener);
    void stop();

    const ModelInfo& model_info() const;
    std::uint32_t num_blocks() const;
    std::uint32_t max_context() const;
    std::vector<StageDescription> stages() const;

    bool send(Step step) override;
    void cancel(Epoch epoch, StepId step) override;
    std::uint32_t max_in_flight() const override;

private:
    struct State;
    explicit FleetChain(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace shardline
