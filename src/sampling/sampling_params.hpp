#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shardline {

inline constexpr std::uint32_t kMaxLogprobs = 20;  // alternatives per token, as OpenAI
inline constexpr std::size_t kMaxLogitBiasEntries = 1024;

// How the next token is drawn; OpenAI's fields plus the field's usual extras. Defaults are greedy.
struct SamplingParams {
    float temperature = 0.0F;         // 0: greedy; at most 2
    std::uint32_t top_k = 0;          // 0: off
    float top_p = 1.0F;               // (0, 1]
    float min_p = 0.0F;               // [0, 1]; 0: off
    float repetition_penalty = 1.0F;  // (0, 10]; 1: off; over prompt and answer
    float presence_penalty = 0.0F;    // [-2, 2]; over the answer only
    float frequency_penalty = 0.0F;   // [-2, 2]; over the answer only
    std::vector<std::pair<std::int64_t, float>> logit_bias;  // ids in the vocabulary, [-100, 100]
    std::uint64_t seed = 0;          // the draw depends on it and on the position alone
    std::uint32_t num_logprobs = 0;  // alternatives reported per token, at most kMaxLogprobs
    bool logprobs = false;

    // Throws Error(kInvalidArgument) naming field, value and allowed range.
    void validate(std::uint32_t vocab_size) const;
};

}  // namespace shardline
