#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.hpp"

namespace shardline {

// A number of tokens, drawn evenly from a range for every request.
struct TokenRange {
    std::uint32_t least = 0;
    std::uint32_t most = 0;

    std::uint32_t draw(std::mt19937& random) const {
        return std::uniform_int_distribution<std::uint32_t>(least, most)(random);
    }
};

// "64" or "32..256". Throws Error that shows how it is written.
TokenRange parse_token_range(const std::string& text);

// What a bench puts on an engine. Prompts are random tokens, the same for the same seed.
struct Load {
    std::uint32_t num_streams = 1;  // closed loop: each asks again when it was answered
    std::uint32_t requests_per_stream = 1;
    std::optional<double> requests_per_s;  // open loop instead: they come whatever happens
    TokenRange prompt_tokens;
    TokenRange answer_tokens;
    std::uint32_t vocab_size = 0;
    std::uint32_t seed = 1;
};

// Times as a client of the engine sees them.
struct LoadResult {
    double seconds = 0.0;
    std::uint64_t num_tokens = 0;
    std::vector<double> first_token_ms;
    std::vector<double> between_tokens_ms;
    std::vector<double> whole_answer_ms;

    double tokens_per_s() const { return static_cast<double>(num_tokens) / seconds; }
};

// Runs to the end of the last answer. Throws Error when the engine refuses or fails a request.
LoadResult run_load(Engine& engine, const Load& load);

// One request with this prompt.
LoadResult run_one(Engine& engine, std::vector<std::int64_t> prompt, std::uint32_t answer_tokens);

std::vector<std::int64_t> random_prompt(std::uint32_t num_tokens, std::uint32_t vocab_size,
                                        std::mt19937& random);

}  // namespace shardline
