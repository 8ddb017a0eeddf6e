#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/bounded_queue.hpp"
#include "step/stage_executor.hpp"

namespace shardline {

// One running stage: a thread that takes steps in order, runs them and hands them on. A failed,
// cancelled or stale step is handed to `on_result` instead of onward, so nothing is lost.
// push() and cancel() may be called from any thread; the callbacks come from the stage's thread.
class StageWorker final {
public:
    using Forward = std::function<void(Step)>;         // the next stage's way in
    using OnResult = std::function<void(StepResult)>;  // for what ends here

    StageWorker(std::uint32_t stage_index, std::string stage_name,
                std::unique_ptr<StageExecutor> executor, Epoch epoch, Forward forward,
                OnResult on_result);
    ~StageWorker();

    // False when the queue is full or closed: the sender kept fewer steps in flight than allowed,
    // so a full queue is a peer's fault.
    bool push(Step step);
    void cancel(Epoch epoch, StepId step);
    void stop();  // drains nothing: steps still queued are dropped
};

}  // namespace shardline
