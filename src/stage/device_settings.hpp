#pragma once

#include <openvino/openvino.hpp>

#include "step/stage_spec.hpp"

namespace shardline {

// What a part is compiled with. Throws Error(kInvalidArgument) on a name nobody knows.
ov::AnyMap compile_settings(const StageSpec& spec);

// Reads back what the device made of them.
EffectiveSettings effective_settings(const ov::CompiledModel& compiled);

// Throws Error(kUnsupported) that names the first setting the device did not take over: bits
// would differ from the other stages'.
void check_honoured(const EffectiveSettings& effective, const NumericSettings& wanted);

}  // namespace shardline
