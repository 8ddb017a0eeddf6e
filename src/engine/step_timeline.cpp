#include "engine/step_timeline.hpp"

#include <algorithm>

namespace shardline {

PlacedStep StepTimeline::place(const StepRecord& step) {
    using std::chrono::microseconds;
    PlacedStep placed;
    placed.sent_us = std::chrono::floor<microseconds>(step.sent - origin_).count();
    placed.returned_us = std::chrono::ceil<microseconds>(step.returned - origin_).count();
    placed.slot = take_slot(placed.sent_us, placed.returned_us);
    // Nothing in a step takes longer than the step. Whoever says so must not push the slices of
    // every later step into the future.
    const std::int64_t longest = placed.returned_us - placed.sent_us;
    const auto bounded = [longest](std::uint32_t time_us) {
        return static_cast<std::uint32_t>(std::min<std::int64_t>(time_us, longest));
    };
    std::int64_t work_us = 0;
    for (StageTiming timing : step.timings) {
        if (timing.stage < stage_free_us_.size()) {
            timing.queue_us = bounded(timing.queue_us);
            timing.execute_us = bounded(timing.execute_us);
            work_us += std::int64_t{timing.queue_us} + timing.execute_us;
            placed.stages.push_back({0, timing});
        }
    }
    std::int64_t now_us = placed.sent_us;
    auto num_hops = static_cast<std::int64_t>(placed.stages.size()) + 1;
    for (StageSlice& slice : placed.stages) {
        const std::int64_t hops_us =
            std::max<std::int64_t>(placed.returned_us - now_us - work_us, 0);
        std::int64_t& free_us = stage_free_us_[slice.timing.stage];
        now_us += hops_us / num_hops--;
        slice.begin_us = std::max(now_us + slice.timing.queue_us, free_us);
        work_us -= std::int64_t{slice.timing.queue_us} + slice.timing.execute_us;
        now_us = free_us = slice.end_us();
    }
    return placed;
}

// The first that is free: as many as there are steps in flight.
std::uint32_t StepTimeline::take_slot(std::int64_t sent_us, std::int64_t returned_us) {
    const auto free = std::find_if(slot_free_us_.begin(), slot_free_us_.end(),
                                   [&](std::int64_t end_us) { return end_us <= sent_us; });
    const auto slot = static_cast<std::uint32_t>(free - slot_free_us_.begin());
    if (free == slot_free_us_.end()) {
        slot_free_us_.push_back(returned_us);
    } else {
        *free = returned_us;
    }
    return slot;
}

}  // namespace shardline
