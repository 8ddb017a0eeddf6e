#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/coordinator.hpp"

namespace shardline {

struct Generation {
    std::string text;
    std::vector<std::int64_t> token_ids;
    std::string finish_reason;  // "stop" or "length"
    std::uint32_t prompt_tokens = 0;
    double first_token_ms = 0.0;  // from submission
    double total_ms = 0.0;
};

struct GenerationOptions {
    SamplingParams sampling;
    std::uint32_t max_tokens = 256;
    bool ignore_eos = false;  // benches want a fixed number of tokens
};

// Submits one request and follows it to its end; `on_text` sees the text as it comes. `stopped`
// is asked between tokens and cancels. Throws Error when the engine refuses or fails.
Generation generate(Coordinator& coordinator, std::vector<std::int64_t> prompt,
                    const GenerationOptions& options,
                    const std::function<void(const std::string&)>& on_text,
                    const std::function<bool()>& stopped);

// The answer's budget: what is asked for, at most what the context leaves after the prompt.
// Throws Error naming both numbers when it leaves nothing.
std::uint32_t fitting_max_tokens(const Coordinator& coordinator, std::size_t prompt_tokens,
                                 std::uint32_t wanted);

}  // namespace shardline
