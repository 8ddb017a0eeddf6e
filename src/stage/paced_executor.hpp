#pragma once

#include <chrono>
#include <memory>

#include "step/stage_executor.hpp"

namespace shardline {

// How long a step takes at least: `first_row` and, for every row beyond, `next_row`.
struct Pace {
    std::chrono::microseconds first_row{0};
    std::chrono::microseconds next_row{0};
};

// A stage that answers no sooner than its pace, with what it really computed: a fleet of
// accelerators replayed on whatever machine there is. A simulation, for benches only; whoever
// prints figures of it says so.
std::unique_ptr<StageExecutor> make_paced_executor(std::unique_ptr<StageExecutor> executor,
                                                   const Pace& pace);

}  // namespace shardline
