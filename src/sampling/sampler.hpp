#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sampling/logits.hpp"
#include "sampling/sampling_params.hpp"

namespace shardline {

struct TokenLogprob {
    std::int64_t token = 0;
    float logprob = 0.0F;
};

struct SampledToken {
    std::int64_t token = 0;
    std::optional<float> logprob;            // with params.logprobs
    std::vector<TokenLogprob> top_logprobs;  // params.num_logprobs of them, best first
};

// What stands before the token to draw.
struct TokenHistory {
    std::span<const std::int64_t> prompt;
    std::span<const std::int64_t> output;
};

// Draws the next token from one row of logits. The result is a function of the arguments alone;
// the object only keeps scratch memory between calls, so each thread has its own.
//
// Order of operations, and why:
//   1. logit_bias          the caller's word on the model's own scale
//   2. repetition penalty  divides, so it comes before anything is subtracted (as in HF); it sees
//                          prompt and answer
//   3. presence, frequency subtract from logits of the answer's tokens only (as OpenAI words it)
//   4. temperature         the penalties mean the same at any temperature
//   5. top_k, top_p, min_p each on what the one before left, probabilities after temperature (as
//                          HF's warpers): the surest cut first, the relative one last
// Greedy (temperature 0) stops after 3 and takes the maximum, the lowest id among equals. Ties at
// the edge of top_k and top_p go to the lower id as well.
//
// Log-probabilities are those of the untouched logits at temperature 1, as OpenAI reports them.
class Sampler final {
public:
    // `position`: how many tokens stand before the drawn one; with the seed it fixes the draw.
    // Params are valid (SamplingParams::validate), logits not empty. Nothing when the row is
    // broken: no finite number, an infinite maximum, or all logits equal (what a device that went
    // wrong answers); an endless text of token 0 would hide it.
    std::optional<SampledToken> sample(std::span<const float> logits, const SamplingParams& params,
                                       const TokenHistory& history, std::uint64_t position);

private:
    struct Candidate {
        float weight = 0.0F;
        std::uint32_t token = 0;
    };

    static bool ranks_before(const Candidate& a, const Candidate& b);

    std::span<const float> adjust(std::span<const float> logits, const SamplingParams& params,
                                  const TokenHistory& history);
    void penalise_repetition(std::span<const std::int64_t> tokens, float penalty);
    void penalise_output(std::span<const std::int64_t> output, const SamplingParams& params);
    void begin_round();
    bool first_sight(std::int64_t token);

    std::int64_t draw(std::span<const float> logits, float max, const SamplingParams& params,
                      double uniform);
    std::int64_t draw_from_weights(double uniform) const;
    float largest_bound(std::span<const float> values, std::size_t count);
    void keep_top_k(std::size_t count);
    void keep_top_p(double target);
    Candidate last_within(double target);

    void report_logprobs(std::span<const float> logits, float max, std::uint32_t num_alternatives,
                         SampledToken& sampled);

    std::vector<float> adjusted_;
    std::vector<std::uint32_t> seen_;  // seen_[token] == round_: met in this round
    std::uint32_t round_ = 0;
    std::vector<float> weights_;  // of the whole vocabulary, the largest is 1, dropped ones 0
    std::vector<float> maxima_;
    std::vector<double> class_sums_;
    std::vector<Candidate> ranked_;
};

}  // namespace shardline
