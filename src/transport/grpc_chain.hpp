#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "security/credentials.hpp"
#include "step/stage_spec.hpp"
#include "transport/chain.hpp"
#include "transport/protocol.hpp"
#include "transport/worker_client.hpp"

namespace shardline {

struct ChainHop {
    std::string address;  // host:port of the worker
    StageSpec spec;
};

// Who a coordinator is to its workers. One per coordinator process: a worker that is still busy
// with an older epoch of the same identity lets a newer one take over at once.
struct CoordinatorIdentity {
    std::string name;  // for people: "host/pid"
    std::string id;    // random
};
CoordinatorIdentity make_coordinator_identity();

struct ChainOptions {
    CoordinatorIdentity coordinator;
    std::chrono::milliseconds connect_timeout = kConnectTimeout;
    std::chrono::milliseconds heartbeat_lost = kHeartbeatLost;
    std::chrono::milliseconds load_timeout = std::chrono::minutes(60);
    std::chrono::milliseconds step_timeout = std::chrono::minutes(2);  // one step, all stages
};

// How a stage came up.
struct LoadedStage {
    WorkerDescription worker;
    EffectiveSettings effective;
    std::uint64_t weights_bytes = 0;   // 0 when the worker cannot tell
    std::uint64_t kv_pool_bytes = 0;   // "
    std::uint64_t resident_bytes = 0;  // of the worker process, file-mapped pages not counted
    bool reused = false;               // it was still loaded from an earlier epoch
};

// What a worker (index in the chain) is doing and how far it is, 0 to 1. Called from several
// threads, one at a time.
using ChainProgress =
    std::function<void(std::size_t worker, const std::string& phase, double fraction)>;

// The coordinator's side of a chain of workers for one epoch:
//
//     coordinator ── steps ──► worker 0 ── steps ──► worker 1 ... worker n-1
//          ▲                                                         │
//          └───────────────────────── results ───────────────────────┘
//
// and to every worker a connection of its own that carries heartbeats and the results of steps
// that ended early. Listens on nothing. A worker is lost (on_down) when a stream breaks, when it
// says so, or when nothing is heard from it for heartbeat_lost.
class GrpcChain final : public Chain {
public:
    GrpcChain(const Credentials& credentials, std::vector<ChainHop> hops, Epoch epoch,
              ChainOptions options, ChainCallbacks callbacks);
    ~GrpcChain() override;  // closes

    // Connects to all workers, claims them, loads all stages side by side and opens the streams.
    // Called once; the chain takes steps when it returns. Throws Error naming the worker: not
    // there, another fleet's, another protocol, busy, cannot load, stages that would compute
    // different bits. `model_directory` holds the model whose pieces workers lack.
    std::vector<LoadedStage> load(const std::filesystem::path& model_directory,
                                  const ChainProgress& progress);

    bool send(Step step) override;
    void cancel(StepId step) override;
    std::uint32_t num_stages() const override;
    void close() override;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace shardline
