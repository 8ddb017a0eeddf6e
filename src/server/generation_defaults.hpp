#pragma once

#include <filesystem>

#include "sampling/sampling_params.hpp"

namespace shardline {

// Temperature 1, nothing cut off.
SamplingParams openai_defaults();

// What a request gets that is silent about sampling: OpenAI's defaults, each replaced by the
// model's own recommendation where generation_config.json has one (temperature, top_p, top_k,
// min_p, repetition_penalty). Throws Error naming file and field when the file is there but does
// not make sense.
SamplingParams read_generation_defaults(const std::filesystem::path& model_directory);

}  // namespace shardline
