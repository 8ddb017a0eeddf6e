#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "step/step.hpp"

namespace shardline {

// A step that came back whole, as EngineOptions::on_step is told of it.
struct StepRecord {
    StepId step{};
    std::uint32_t num_rows = 0;
    std::uint32_t num_sequences = 0;      // 0: a probe
    std::uint32_t num_prompt_tokens = 0;  // of the rows
    std::uint32_t num_answer_tokens = 0;  // of the rows
    std::chrono::steady_clock::time_point sent;
    std::chrono::steady_clock::time_point returned;
    std::span<const StageTiming> timings;  // in the order of the chain; valid during the call

    // When the step's tokens have been drawn.
    std::uint32_t num_running = 0;
    std::uint32_t num_waiting = 0;
    std::uint32_t num_blocks_used = 0;
};

struct StageSlice {
    std::int64_t begin_us = 0;
    StageTiming timing;

    std::int64_t end_us() const { return begin_us + std::int64_t{timing.execute_us}; }
};

struct PlacedStep {
    std::uint32_t slot = 0;  // of the steps in flight; those of one slot do not overlap
    std::int64_t sent_us = 0;
    std::int64_t returned_us = 0;
    std::vector<StageSlice> stages;
};

// Says when each stage ran each step, on the coordinator's clock. The stages' own clocks are not
// synchronised and tell durations only, so the places are derived:
//
//     sent                                                            returned
//      │ hop ╎ queue ╎ execute ╎ hop ╎ queue ╎ execute ╎ ... ╎ execute ╎ hop │
//
// What queues and executions leave of a step's time are hops, taken for equally long. A stage runs
// steps one after another, in order: a slice that would begin before its predecessor's end begins
// there, and the hops that follow share what is left. Durations stay as they were measured; the
// places are off by no more than the hops are unequal.
// Not thread-safe.
class StepTimeline final {
public:
    // Times are microseconds from `origin`.
    StepTimeline(std::uint32_t num_stages, std::chrono::steady_clock::time_point origin)
        : stage_free_us_(num_stages, 0), origin_(origin) {}

    // In the order in which the steps came back. Timings of stages that there are not are left out.
    PlacedStep place(const StepRecord& step);

private:
    std::uint32_t take_slot(std::int64_t sent_us, std::int64_t returned_us);

    std::vector<std::int64_t> stage_free_us_;  // end of the last slice, by stage
    std::vector<std::int64_t> slot_free_us_;   // end of the last step in flight, by slot
    const std::chrono::steady_clock::time_point origin_;
};

}  // namespace shardline
