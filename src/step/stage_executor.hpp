#pragma once

#include <cstdint>
#include <string>

#include "step/stage_spec.hpp"
#include "step/step.hpp"

namespace shardline {

// Runs one part of the model on one device. stage/paged_executor is the default; a stateful and a
// static kind follow. One thread at a time (the stage's own).
class StageExecutor {
public:
    virtual ~StageExecutor() = default;

    // The step's rows through this part. The plan has passed check_plan(). Activations are
    // checked against the part's inputs here; throws Error that names the tensor when they do not
    // fit or when a row that leaves holds a NaN or an infinity.
    virtual Activations run(const StepPlan& plan, Activations activations) = 0;

    virtual StepLimits limits() const = 0;

    // What the part was compiled with; empty for executors that compile nothing.
    virtual EffectiveSettings effective_settings() const { return {}; }
};

}  // namespace shardline
