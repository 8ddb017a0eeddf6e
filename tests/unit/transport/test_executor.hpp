#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "step/stage_executor.hpp"

namespace shardline {

// What a test stage computes: every value x becomes 3 x + stage + 1, so the order of stages shows,
// and `before` lets a test delay, block or fail a step.
inline constexpr std::uint32_t kTestHidden = 16;
inline constexpr StepLimits kTestLimits{.num_blocks = 64, .max_rows = 128, .max_context = 512};

using BeforeStep = std::function<void(std::uint32_t stage, const StepPlan& plan)>;

// `effective` is what it claims to run with.
std::unique_ptr<StageExecutor> make_test_executor(std::uint32_t stage, BeforeStep before = {},
                                                  EffectiveSettings effective = {});
float expected_value(float input, std::uint32_t num_stages);

// A step of `rows` one-token spans whose values depend on its id.
Step make_step(Epoch epoch, std::uint64_t id, std::uint32_t rows = 2);
float input_value(std::uint64_t id, std::size_t index);

}  // namespace shardline
