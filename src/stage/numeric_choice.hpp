#pragma once

#include <filesystem>
#include <openvino/openvino.hpp>

#include "step/stage_spec.hpp"

namespace shardline {

// The numeric settings under which a model's bits depend least on how many rows share a step.
//
// The CPU's integer kernels give a row the same sums in any company; its floating kernels do not.
// A weight takes the integer ones only if the dynamic quantisation group fits its own groups, so
// the group is the smallest that the model's weights have (16 for Q6_K tensors, else 32).
NumericSettings numeric_settings_for(const ov::Model& model);

// As above, for the model in a directory. Throws as ModelSource::open does.
NumericSettings numeric_settings_for(const std::filesystem::path& model_directory);

}  // namespace shardline
