#include "cli/measured_link.hpp"

#include <utility>

namespace shardline {

std::vector<MeasuredLink::Row> MeasuredLink::take_rows() {
    std::lock_guard lock(mutex_);
    return std::exchange(rows_, {});
}

bool MeasuredLink::send(Step step) {
    const StepId id = step.plan.step;
    {
        std::lock_guard lock(mutex_);
        sent_[id] = {std::chrono::steady_clock::now(), num_rows(step.plan)};
    }
    if (chain_.send(std::move(step))) {
        return true;
    }
    std::lock_guard lock(mutex_);
    sent_.erase(id);
    return false;
}

void MeasuredLink::step_done(StepResult result) {
    const auto now = std::chrono::steady_clock::now();
    {
        std::lock_guard lock(mutex_);
        if (const auto found = sent_.find(result.step); found != sent_.end()) {
            const auto passed = now - found->second.at;
            rows_.push_back({found->second.rows,
                             std::chrono::duration<double, std::milli>(passed).count(),
                             result.timings});
            sent_.erase(found);
        }
    }
    engine_->step_done(std::move(result));
}

}  // namespace shardline
