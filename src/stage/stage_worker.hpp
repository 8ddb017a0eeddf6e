#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>

#include "base/bounded_queue.hpp"
#include "step/stage_executor.hpp"

namespace shardline {

// One running stage: a thread that takes steps in order, runs them and hands them on. A failed,
// cancelled or stale step is handed to `on_result` instead of onward, so nothing is lost.
// push() and cancel() may be called from any thread; the callbacks come from the stage's thread
// and must not call stop().
class StageWorker final {
public:
    using Forward = std::function<void(Step)>;         // the next stage's way in
    using OnResult = std::function<void(StepResult)>;  // for what ends here

    static constexpr std::size_t kMaxQueuedSteps = 64;
    static constexpr std::size_t kMaxCancels = 1024;  // remembered for steps yet to come

    // `stage_name` as in messages: "stage 1 (15-30): ...".
    StageWorker(std::uint32_t stage_index, std::string stage_name,
                std::unique_ptr<StageExecutor> executor, Epoch epoch, Forward forward,
                OnResult on_result);
    ~StageWorker();
    StageWorker(const StageWorker&) = delete;
    StageWorker& operator=(const StageWorker&) = delete;

    // False when the queue is full or closed: the sender kept fewer steps in flight than allowed,
    // so a full queue is a peer's fault.
    bool push(Step step);

    // The step is not run if it has not begun, queued already or still to come. Of another epoch:
    // ignored, as such steps do not run anyway.
    void cancel(Epoch epoch, StepId step);

    // Waits for the step that runs; steps still queued are dropped, callbacks cease.
    void stop();

private:
    using Clock = std::chrono::steady_clock;
    struct Arrival {
        Step step;
        Clock::time_point time;
    };

    void work(const std::stop_token& stopping);
    void process(Arrival arrival);
    bool take_cancel(StepId step);
    void end_step(Step step, StepStatus status, std::string error);

    const std::uint32_t stage_index_;
    const std::string stage_name_;
    const std::unique_ptr<StageExecutor> executor_;
    const Epoch epoch_;
    const Forward forward_;
    const OnResult on_result_;
    BoundedQueue<Arrival> arrivals_;
    std::mutex cancels_mutex_;
    std::set<StepId> cancels_;  // guarded by cancels_mutex_
    std::mutex stop_mutex_;     // one joins, others wait for it
    std::jthread thread_;       // last: starts when all else is there
};

}  // namespace shardline
