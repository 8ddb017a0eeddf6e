#include "transport/stage_run.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "stage.pb.h"
#include "transport/protocol.hpp"
#include "transport/wire_codec.hpp"

namespace shardline {
namespace {

// StageWorker wants an executor of its own; ours outlives the run.
class LentExecutor final : public StageExecutor {
public:
    explicit LentExecutor(std::shared_ptr<StageExecutor> executor)
        : executor_(std::move(executor)) {}

    Activations run(const StepPlan& plan, Activations activations) override {
        return executor_->run(plan, std::move(activations));
    }
    StepLimits limits() const override { return executor_->limits(); }
    EffectiveSettings effective_settings() const override {
        return executor_->effective_settings();
    }

private:
    const std::shared_ptr<StageExecutor> executor_;
};

}  // namespace

StageRun::StageRun(std::shared_ptr<WorkerSession> session, Occupancy occupancy,
                   std::shared_ptr<StageExecutor> executor, const Place& place,
                   const Credentials& credentials, const PeerHello& hello)
    : session_(std::move(session)),
      occupancy_(std::move(occupancy)),
      epoch_(hello.epoch),
      limits_(executor->limits()),
      max_frame_bytes_(max_frame_bytes(limits_.max_rows, kMaxRowBytes)) {
    if (!place.downstream_address.empty()) {
        downstream_ = std::make_unique<StepSender>(place.downstream_address, credentials, hello,
                                                   place.downstream_timeout,
                                                   [watch = session_](const std::string& reason) {
                                                       watch->report_trouble({reason, true});
                                                   });
    }
    worker_ = std::make_unique<StageWorker>(
        place.stage, place.name, std::make_unique<LentExecutor>(std::move(executor)), epoch_,
        [this](Step step) { step_done(std::move(step)); },
        [this](StepResult result) { step_ended(std::move(result)); });
}

void StageRun::take(wire::StepFrame& frame) {
    if (frame.has_cancel()) {
        const Epoch epoch{frame.cancel().epoch()};
        const StepId step{frame.cancel().step()};
        worker_->cancel(epoch, step);
        if (downstream_) {
            downstream_->cancel(epoch, step);
        }
        return;
    }
    if (!frame.has_step()) {
        throw Error(ErrorCode::kCorrupt, "a frame on the step stream is no step and no cancel");
    }
    if (frame.step().plan().epoch() != to_number(epoch_)) {
        room_logger("transport")
            ->debug("dropped a step of epoch {}, this is {}", frame.step().plan().epoch(),
                    to_number(epoch_));
        return;
    }
    if (frame.ByteSizeLong() > max_frame_bytes_) {
        throw Error(ErrorCode::kCorrupt, fmt::format("a step frame has {} bytes, the limit is {}",
                                                     frame.ByteSizeLong(), max_frame_bytes_));
    }
    Step step = decode_step(std::move(*frame.mutable_step()), limits_);
    ++session_->steps_received;
    if (!worker_->push(std::move(step))) {
        throw Error(ErrorCode::kResourceExhausted, "more steps are in flight than agreed");
    }
}

void StageRun::step_ended(StepResult result) {
    ++session_->steps_finished;
    session_->report(std::move(result));
}

void StageRun::step_done(Step step) {
    ++session_->steps_finished;
    if (!downstream_) {
        session_->deliver({.epoch = step.plan.epoch,
                           .step = step.plan.step,
                           .status = StepStatus::kDone,
                           .error = {},
                           .outputs = std::move(step.activations),
                           .timings = std::move(step.timings)});
        return;
    }
    if (!downstream_->push(std::move(step))) {
        session_->report_trouble({"takes no more steps", true});
    }
}

}  // namespace shardline
