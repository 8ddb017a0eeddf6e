#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/ids.hpp"
#include "step/stage_executor.hpp"
#include "transport/chain.hpp"

namespace shardline {

// What a test does to a step when a stage begins it.
struct Fault {
    enum class Kind : std::uint8_t {
        kNone,
        kDelay,     // runs `delay` later, and everything behind it
        kDrop,      // is lost: no result comes
        kCorrupt,   // runs with the first byte of its first tensor inverted
        kFail,      // fails instead of running
        kLoseLink,  // the chain goes down
    };
    Kind kind = Kind::kNone;
    std::chrono::milliseconds delay{0};
};

// Asked for every step that stage `stage` begins, from the stage's thread.
using FaultHook = std::function<Fault(std::uint32_t stage, const StepPlan& plan)>;

// A chain in this process: one StageWorker, so one thread, per executor. Tensors are handed on by
// moving. Without a hook nothing is ever lost.
class LocalChain final : public Chain {
public:
    LocalChain(std::vector<std::unique_ptr<StageExecutor>> executors, Epoch epoch,
               ChainCallbacks callbacks, FaultHook fault_hook = {});
    ~LocalChain() override;  // closes

    bool send(Step step) override;
    void cancel(StepId step) override;
    std::uint32_t num_stages() const override;
    void close() override;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace shardline
