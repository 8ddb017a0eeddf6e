#pragma once

#include <cstddef>
#include <string>

#include "step/step.hpp"

// Steps and results <-> their messages (proto/stage.proto). Tensor bytes are moved, never copied.
// Encoding trusts what it is given. Decoding trusts nothing: it throws Error(kCorrupt) that names
// what is wrong, and what it returns is safe to execute under the limits it was given.

namespace shardline {

namespace wire {
class Step;
class StepResult;
}  // namespace wire

// Limits of a frame that do not depend on the model.
inline constexpr std::size_t kMaxTensors = 64;
inline constexpr std::size_t kMaxTensorNameBytes = 128;
inline constexpr std::size_t kMaxTensorRank = 8;
inline constexpr std::size_t kMaxTimings = 256;
inline constexpr std::size_t kMaxWireTextBytes = 4096;  // error texts and the like

void encode_step(Step&& step, wire::Step& message);
void encode_result(StepResult&& result, wire::StepResult& message);

// Checks every tensor (element type, name, shape, byte count = shape x element size) and the plan
// with check_plan(). Dimensions of activations are at least 1.
Step decode_step(wire::Step&& message, const StepLimits& limits);

// As above; outputs may have no rows (a step that keeps none).
StepResult decode_result(wire::StepResult&& message);

// Valid UTF-8 of at most kMaxWireTextBytes, as a protobuf string has to be: what is not is
// replaced byte by byte with '?'.
std::string wire_text(std::string text);

}  // namespace shardline
