#include "transport/local_link.hpp"

#include <fmt/format.h>

#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "stage/stage_worker.hpp"
#include "transport/protocol.hpp"

namespace shardline {

struct LocalChain::State {
    State(Epoch chain_epoch, ChainCallbacks chain_callbacks, FaultHook hook)
        : epoch(chain_epoch), callbacks(std::move(chain_callbacks)), fault_hook(std::move(hook)) {}

    const Epoch epoch;
    const ChainCallbacks callbacks;
    const FaultHook fault_hook;
    std::mutex mutex;
    bool up = true;                                     // guarded by mutex
    std::set<StepId> in_flight;                         // guarded by mutex
    std::mutex deliver_mutex;                           // callbacks come one at a time
    std::vector<std::unique_ptr<StageWorker>> workers;  // fixed after construction

    void go_down(const std::string& reason) {
        std::lock_guard delivering(deliver_mutex);
        {
            std::lock_guard lock(mutex);
            if (!up) {
                return;
            }
            up = false;
            in_flight.clear();
        }
        if (callbacks.on_down) {
            callbacks.on_down(reason);
        }
    }

    void take_result(StepResult result) {
        std::lock_guard delivering(deliver_mutex);
        {
            std::lock_guard lock(mutex);
            if (!up || in_flight.erase(result.step) == 0) {
                return;
            }
        }
        if (callbacks.on_result) {
            callbacks.on_result(std::move(result));
        }
    }

    // The way into a stage, with the faults on it.
    void enter(std::uint32_t stage, Step step) {
        const Fault fault = fault_hook ? fault_hook(stage, step.plan) : Fault{};
        switch (fault.kind) {
            case Fault::Kind::kNone: break;
            case Fault::Kind::kDelay: std::this_thread::sleep_for(fault.delay); break;
            case Fault::Kind::kDrop: return;
            case Fault::Kind::kCorrupt: corrupt(step); break;
            case Fault::Kind::kFail:
                take_result(ended(step, StepStatus::kFailed,
                                  fmt::format("stage {}: failed on request", stage)));
                return;
            case Fault::Kind::kLoseLink:
                go_down(fmt::format("stage {}: lost on request", stage));
                return;
        }
        const StepId id = step.plan.step;
        if (!workers[stage]->push(std::move(step))) {
            StepResult result;
            result.epoch = epoch;
            result.step = id;
            result.status = StepStatus::kFailed;
            result.error = fmt::format("stage {}: takes no more steps", stage);
            take_result(std::move(result));
        }
    }

    static void corrupt(Step& step) {
        if (!step.activations.empty() && !step.activations.front().bytes.empty()) {
            char& first = step.activations.front().bytes.front();
            first = static_cast<char>(~first);
        }
    }

    static StepResult ended(Step& step, StepStatus status, std::string error) {
        StepResult result;
        result.epoch = step.plan.epoch;
        result.step = step.plan.step;
        result.status = status;
        result.error = std::move(error);
        result.timings = std::move(step.timings);
        return result;
    }

    void leave(std::uint32_t stage, Step step) {
        if (stage + 1 < workers.size()) {
            enter(stage + 1, std::move(step));
            return;
        }
        StepResult result = ended(step, StepStatus::kDone, {});
        result.outputs = std::move(step.activations);
        take_result(std::move(result));
    }
};

LocalChain::LocalChain(std::vector<std::unique_ptr<StageExecutor>> executors, Epoch epoch,
                       ChainCallbacks callbacks, FaultHook fault_hook)
    : state_(std::make_unique<State>(epoch, std::move(callbacks), std::move(fault_hook))) {
    if (executors.empty() || executors.size() > kMaxStages) {
        throw Error(ErrorCode::kInvalidArgument, fmt::format("a chain has 1 to {} stages, not {}",
                                                             kMaxStages, executors.size()));
    }
    for (auto& executor : executors) {
        const auto stage = static_cast<std::uint32_t>(state_->workers.size());
        state_->workers.push_back(std::make_unique<StageWorker>(
            stage, "this process", std::move(executor), epoch,
            [state = state_.get(), stage](Step step) { state->leave(stage, std::move(step)); },
            [state = state_.get()](StepResult result) { state->take_result(std::move(result)); }));
    }
}

LocalChain::~LocalChain() {
    if (state_) {
        close();
    }
}

bool LocalChain::send(Step step) {
    {
        std::lock_guard lock(state_->mutex);
        if (!state_->up || step.plan.epoch != state_->epoch ||
            state_->in_flight.size() >= kMaxStepsInFlight ||
            !state_->in_flight.insert(step.plan.step).second) {
            return false;
        }
    }
    state_->enter(0, std::move(step));
    return true;
}

void LocalChain::cancel(StepId step) {
    for (const auto& worker : state_->workers) {
        worker->cancel(state_->epoch, step);
    }
}

std::uint32_t LocalChain::num_stages() const {
    return static_cast<std::uint32_t>(state_->workers.size());
}

void LocalChain::close() {
    {
        // Waits for a callback that runs; none begins afterwards.
        std::lock_guard delivering(state_->deliver_mutex);
        std::lock_guard lock(state_->mutex);
        state_->up = false;
        state_->in_flight.clear();
    }
    for (const auto& worker : state_->workers) {
        worker->stop();
    }
}

}  // namespace shardline
