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

    static void corrupt(Activations& activations) {
        if (!activations.empty() && !activations.front().bytes.empty()) {
            char& first = activations.front().bytes.front();
            first = static_cast<char>(~first);
        }
    }

    // Called by the stage's thread before it runs the step.
    void apply_fault(std::uint32_t stage, const StepPlan& plan, Activations& activations) {
        const Fault fault = fault_hook(stage, plan);
        switch (fault.kind) {
            case Fault::Kind::kNone: return;
            case Fault::Kind::kDelay: std::this_thread::sleep_for(fault.delay); return;
            case Fault::Kind::kCorrupt: corrupt(activations); return;
            case Fault::Kind::kDrop: {
                std::lock_guard lock(mutex);
                in_flight.erase(plan.step);  // what comes of it goes nowhere
                return;
            }
            case Fault::Kind::kLoseLink:
                go_down(fmt::format("stage {}: lost on request", stage));
                break;
            case Fault::Kind::kFail: break;
        }
        throw Error(ErrorCode::kInternal, "failed on request");
    }

    // The way into a stage from the one before, never from send().
    void enter(std::uint32_t stage, Step step) {
        StepResult refused;
        refused.epoch = epoch;
        refused.step = step.plan.step;
        refused.status = StepStatus::kFailed;
        refused.error = fmt::format("stage {}: takes no more steps", stage);
        if (!workers[stage]->push(std::move(step))) {
            take_result(std::move(refused));
        }
    }

    void leave(std::uint32_t stage, Step step) {
        if (stage + 1 < workers.size()) {
            enter(stage + 1, std::move(step));
            return;
        }
        StepResult result;
        result.epoch = step.plan.epoch;
        result.step = step.plan.step;
        result.outputs = std::move(step.activations);
        result.timings = std::move(step.timings);
        take_result(std::move(result));
    }
};

namespace {

class FaultyExecutor final : public StageExecutor {
public:
    using BeforeRun = std::function<void(const StepPlan& plan, Activations& activations)>;

    FaultyExecutor(std::unique_ptr<StageExecutor> executor, BeforeRun before_run)
        : executor_(std::move(executor)), before_run_(std::move(before_run)) {}

    Activations run(const StepPlan& plan, Activations activations) override {
        before_run_(plan, activations);
        return executor_->run(plan, std::move(activations));
    }
    StepLimits limits() const override { return executor_->limits(); }
    EffectiveSettings effective_settings() const override {
        return executor_->effective_settings();
    }

private:
    const std::unique_ptr<StageExecutor> executor_;
    const BeforeRun before_run_;
};

}  // namespace

LocalChain::LocalChain(std::vector<std::unique_ptr<StageExecutor>> executors, Epoch epoch,
                       ChainCallbacks callbacks, FaultHook fault_hook)
    : state_(std::make_unique<State>(epoch, std::move(callbacks), std::move(fault_hook))) {
    if (executors.empty() || executors.size() > kMaxStages) {
        throw Error(ErrorCode::kInvalidArgument, fmt::format("a chain has 1 to {} stages, not {}",
                                                             kMaxStages, executors.size()));
    }
    for (auto& executor : executors) {
        const auto stage = static_cast<std::uint32_t>(state_->workers.size());
        if (state_->fault_hook) {
            executor = std::make_unique<FaultyExecutor>(
                std::move(executor),
                [state = state_.get(), stage](const StepPlan& plan, Activations& activations) {
                    state->apply_fault(stage, plan, activations);
                });
        }
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
    const StepId id = step.plan.step;
    if (state_->workers.front()->push(std::move(step))) {
        return true;
    }
    std::lock_guard lock(state_->mutex);
    return state_->in_flight.erase(id) == 0;  // down meanwhile: told with all others
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
