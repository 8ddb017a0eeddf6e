#include "fleet/chain_run.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/log.hpp"

namespace shardline {

namespace {

// A stage's thread owns its executor; here the executor outlives the thread.
class BorrowedExecutor final : public StageExecutor {
public:
    explicit BorrowedExecutor(StageExecutor& executor) : executor_(executor) {}

    Activations run(const StepPlan& plan, Activations activations) override {
        return executor_.run(plan, std::move(activations));
    }
    StepLimits limits() const override { return executor_.limits(); }

private:
    StageExecutor& executor_;
};

StepResult done(Step&& step) {
    StepResult result;
    result.epoch = step.plan.epoch;
    result.step = step.plan.step;
    result.outputs = std::move(step.activations);
    result.timings = std::move(step.timings);
    return result;
}

StepResult failed(Epoch epoch, StepId step, const char* error) {
    StepResult result;
    result.epoch = epoch;
    result.step = step;
    result.status = StepStatus::kFailed;
    result.error = error;
    return result;
}

void log_loaded(const std::vector<LoadedStage>& stages, Epoch epoch) {
    for (const LoadedStage& stage : stages) {
        room_logger("fleet")->info("epoch {}: {} ({}) has {} MiB of weights, {}{}",
                                   to_number(epoch), stage.worker.name, stage.worker.address,
                                   stage.weights_bytes >> 20, to_string(stage.effective),
                                   stage.reused ? ", still loaded" : "");
    }
}

}  // namespace

ChainRun::ChainRun(Epoch epoch, const ChainParts& parts, const ChainProgress& progress,
                   ChainCallbacks callbacks)
    : epoch_(epoch), callbacks_(std::move(callbacks)) {
    if (parts.last != nullptr) {
        start_last(parts);
    }
    if (!parts.hops.empty()) {
        ChainOptions options;
        options.coordinator = parts.identity;
        workers_ = std::make_unique<GrpcChain>(
            parts.credentials, parts.hops, epoch, options,
            ChainCallbacks{
                .on_result = [this](StepResult result) { pass_to_head(std::move(result)); },
                .on_down = callbacks_.on_down});
        log_loaded(workers_->load(parts.model_directory, progress), epoch);
    }
    start_first(parts);
}

ChainRun::~ChainRun() {
    // Against the stream: whoever passes something on must find its successor alive.
    first_.reset();
    if (workers_ != nullptr) {
        workers_->close();
        workers_.reset();
    }
    last_.reset();
}

void ChainRun::start_first(const ChainParts& parts) {
    first_ = std::make_unique<StageWorker>(
        0, "coordinator", std::make_unique<BorrowedExecutor>(*parts.first), epoch_,
        [this](Step step) {
            if (workers_ != nullptr) {
                pass_to_workers(std::move(step));
            } else {
                complete(done(std::move(step)));
            }
        },
        [this](StepResult result) { complete(std::move(result)); });
}

void ChainRun::start_last(const ChainParts& parts) {
    const auto stage_index = static_cast<std::uint32_t>(parts.hops.size() + 1);
    last_ = std::make_unique<StageWorker>(
        stage_index, "coordinator head", std::make_unique<BorrowedExecutor>(*parts.last), epoch_,
        [this](Step step) { complete(done(std::move(step))); },
        [this](StepResult result) { complete(std::move(result)); });
}

bool ChainRun::send(Step step, std::uint32_t max_in_flight) {
    const StepId id = step.plan.step;
    {
        std::lock_guard lock(mutex_);
        if (step.plan.epoch != epoch_ || in_flight_.size() >= max_in_flight) {
            return false;
        }
        in_flight_.emplace(id, step.plan);
    }
    if (first_->push(std::move(step))) {
        return true;
    }
    std::lock_guard lock(mutex_);
    in_flight_.erase(id);
    return false;
}

void ChainRun::cancel(StepId step) {
    first_->cancel(epoch_, step);
    if (workers_ != nullptr) {
        workers_->cancel(step);
        last_->cancel(epoch_, step);
    }
}

void ChainRun::pass_to_workers(Step step) {
    const StepId id = step.plan.step;
    if (!workers_->send(std::move(step))) {
        // The loss itself is reported by on_down; this step must not stay open meanwhile.
        complete(failed(epoch_, id, "the connection to the first worker is closed"));
    }
}

void ChainRun::pass_to_head(StepResult result) {
    if (result.status != StepStatus::kDone) {
        complete(std::move(result));
        return;
    }
    Step step;
    {
        std::lock_guard lock(mutex_);
        const auto found = in_flight_.find(result.step);
        if (found == in_flight_.end() || result.epoch != epoch_) {
            return;
        }
        step.plan = found->second;
    }
    // Workers count from 0 among themselves; in the whole chain the coordinator comes first.
    for (std::uint32_t stage = 0; stage < result.timings.size(); ++stage) {
        result.timings[stage].stage = stage;
    }
    if (step.plan.kept_rows.empty()) {
        complete(std::move(result));
        return;
    }
    const StepId id = result.step;
    step.activations = std::move(result.outputs);
    step.timings = std::move(result.timings);
    if (!last_->push(std::move(step))) {
        complete(failed(epoch_, id, "the head is closed or its queue is full"));
    }
}

void ChainRun::complete(StepResult result) {
    {
        std::lock_guard lock(mutex_);
        if (in_flight_.erase(result.step) == 0) {
            return;
        }
    }
    callbacks_.on_result(std::move(result));
}

}  // namespace shardline
