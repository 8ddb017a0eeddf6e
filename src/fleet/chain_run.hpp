#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "security/credentials.hpp"
#include "stage/stage_worker.hpp"
#include "step/stage_executor.hpp"
#include "transport/grpc_chain.hpp"

namespace shardline {

// What a chain is made of. The executors stay with whoever owns them: they outlive one run.
struct ChainParts {
    StageExecutor* first = nullptr;  // embedding and kept layers, or the whole model
    StageExecutor* last = nullptr;   // the head; null when `first` is everything
    std::vector<ChainHop> hops;      // the workers between
    std::filesystem::path model_directory;
    Credentials credentials;
    CoordinatorIdentity identity;
};

// One life of the chain, from set-up to the first loss: all that belongs to one epoch.
//
//     send -> first (own thread) -> worker ... worker -> last (own thread) -> on_result
//
// send() and cancel() from the engine thread; the callbacks come from threads of the chain.
class ChainRun final {
public:
    // Connects and loads; throws Error naming the worker.
    ChainRun(Epoch epoch, const ChainParts& parts, const ChainProgress& progress,
             ChainCallbacks callbacks);
    ChainRun(const ChainRun&) = delete;
    ChainRun& operator=(const ChainRun&) = delete;
    ~ChainRun();

    bool send(Step step, std::uint32_t max_in_flight);
    void cancel(StepId step);

private:
    void start_first(const ChainParts& parts);
    void start_last(const ChainParts& parts);
    void pass_to_workers(Step step);
    void pass_to_head(StepResult result);
    void complete(StepResult result);

    const Epoch epoch_;
    const ChainCallbacks callbacks_;
    std::mutex mutex_;
    // What the head still needs of a step that is with the workers. Guarded by mutex_.
    std::unordered_map<StepId, StepPlan> in_flight_;
    std::unique_ptr<StageWorker> first_;
    std::unique_ptr<StageWorker> last_;
    std::unique_ptr<GrpcChain> workers_;
};

}  // namespace shardline
