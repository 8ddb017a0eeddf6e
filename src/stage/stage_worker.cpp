#include "stage/stage_worker.hpp"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/log.hpp"

namespace shardline {

namespace {

std::uint32_t microseconds_between(std::chrono::steady_clock::time_point begin,
                                   std::chrono::steady_clock::time_point end) {
    return static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(end - begin).count());
}

std::uint64_t activation_bytes(const Activations& activations) {
    std::uint64_t bytes = 0;
    for (const Tensor& tensor : activations) {
        bytes += tensor.bytes.size();
    }
    return bytes;
}

}  // namespace

StageWorker::StageWorker(std::uint32_t stage_index, std::string stage_name,
                         std::unique_ptr<StageExecutor> executor, Epoch epoch, Forward forward,
                         OnResult on_result)
    : stage_index_(stage_index),
      stage_name_(std::move(stage_name)),
      executor_(std::move(executor)),
      epoch_(epoch),
      forward_(std::move(forward)),
      on_result_(std::move(on_result)),
      arrivals_(kMaxQueuedSteps),
      thread_([this](const std::stop_token& stopping) { work(stopping); }) {}

StageWorker::~StageWorker() {
    stop();
}

bool StageWorker::push(Step step) {
    return arrivals_.try_push({std::move(step), Clock::now()});
}

void StageWorker::cancel(Epoch epoch, StepId step) {
    if (epoch != epoch_) {
        return;
    }
    std::lock_guard lock(cancels_mutex_);
    cancels_.insert(step);
    if (cancels_.size() > kMaxCancels) {
        // Ids ascend, so the smallest is the one least likely still to come.
        cancels_.erase(cancels_.begin());
    }
}

void StageWorker::stop() {
    std::lock_guard lock(stop_mutex_);
    thread_.request_stop();
    arrivals_.close();
    if (thread_.joinable()) {
        thread_.join();
    }
}

bool StageWorker::take_cancel(StepId step) {
    std::lock_guard lock(cancels_mutex_);
    return cancels_.erase(step) > 0;
}

void StageWorker::work(const std::stop_token& stopping) {
    while (auto arrival = arrivals_.pop()) {
        if (stopping.stop_requested()) {
            return;
        }
        try {
            process(std::move(*arrival));
        } catch (const std::exception& fault) {
            room_logger("stage")->error("stage {} ({}) lost a step: {}", stage_index_, stage_name_,
                                        fault.what());
        }
    }
}

void StageWorker::process(Arrival arrival) {
    Step& step = arrival.step;
    if (step.plan.epoch != epoch_ || take_cancel(step.plan.step)) {
        end_step(std::move(step), StepStatus::kCancelled, {});
        return;
    }
    const auto begin = Clock::now();
    const std::uint64_t bytes_in = activation_bytes(step.activations);
    std::string fault = check_plan(step.plan, executor_->limits());
    if (fault.empty()) {
        try {
            step.activations = executor_->run(step.plan, std::move(step.activations));
        } catch (const std::exception& thrown) {
            fault = thrown.what();
        }
    }
    step.timings.push_back({.stage = stage_index_,
                            .queue_us = microseconds_between(arrival.time, begin),
                            .execute_us = microseconds_between(begin, Clock::now()),
                            .bytes_in = bytes_in});
    if (fault.empty()) {
        forward_(std::move(step));
        return;
    }
    end_step(std::move(step), StepStatus::kFailed,
             fmt::format("stage {} ({}): {}", stage_index_, stage_name_, fault));
}

void StageWorker::end_step(Step step, StepStatus status, std::string error) {
    on_result_({.epoch = step.plan.epoch,
                .step = step.plan.step,
                .status = status,
                .error = std::move(error),
                .outputs = {},
                .timings = std::move(step.timings)});
}

}  // namespace shardline
