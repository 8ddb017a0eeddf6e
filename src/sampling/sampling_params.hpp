#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace shardline {

// How the next token is drawn; OpenAI's fields plus the field's usual extras. Defaults are greedy.
struct SamplingParams {
    float temperature = 0.0F;  // 0: greedy
    std::uint32_t top_k = 0;   // 0: off
    float top_p = 1.0F;
    float min_p = 0.0F;
    float repetition_penalty = 1.0F;
    float presence_penalty = 0.0F;
    float frequency_penalty = 0.0F;
    std::vector<std::pair<std::int64_t, float>> logit_bias;
    std::uint64_t seed = 0;
    std::uint32_t num_logprobs = 0;  // alternatives reported per token
    bool logprobs = false;

    // Throws Error(kInvalidArgument) naming field, value and allowed range.
    void validate(std::uint32_t vocab_size) const;
};

}  // namespace shardline
