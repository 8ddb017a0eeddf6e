#include "sampling/sampler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>

#include "sampling/random.hpp"

namespace shardline {

namespace {

constexpr float kLeastWeight = std::numeric_limits<float>::min();
constexpr double kBeyondAll = 1e30;
constexpr std::size_t kBoundChunk = 32;  // logits per maximum when bounding the k-th largest

bool usable(std::span<const float> logits, const LogitScan& scan) {
    if (!std::isfinite(scan.max)) {
        return false;
    }
    // Only where the first logit is the maximum can all be equal.
    return scan.argmax != 0 || logits.size() == 1 ||
           std::any_of(logits.begin(), logits.end(),
                       [&](float logit) { return logit != scan.max; });
}

// Weights are between 0 and 1: their bits, read as a number, grow with them. Four classes an
// octave.
constexpr std::size_t kNumSizeClasses = (0x3f800000U >> 21) + 1;

std::size_t size_class(float weight) {
    return std::bit_cast<std::uint32_t>(weight) >> 21;
}

// Where the running sum passes `target`, never a place without weight.
std::size_t walk(std::span<const float> weights, double target) {
    std::size_t last = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i] == 0.0F) {
            continue;
        }
        last = i;
        target -= static_cast<double>(weights[i]);
        if (target < 0.0) {
            break;
        }
    }
    return last;
}

}  // namespace

std::optional<SampledToken> Sampler::sample(std::span<const float> logits,
                                            const SamplingParams& params,
                                            const TokenHistory& history, std::uint64_t position) {
    const LogitScan raw = scan_logits(logits);
    if (!usable(logits, raw)) {
        return std::nullopt;
    }
    const std::span<const float> adjusted = adjust(logits, params, history);
    const LogitScan scan = adjusted.data() == logits.data() ? raw : scan_logits(adjusted);
    SampledToken sampled;
    if (params.temperature == 0.0F || !std::isfinite(scan.max)) {
        sampled.token = scan.argmax;
    } else {
        sampled.token = draw(adjusted, scan.max, params, uniform_at(params.seed, position));
    }
    if (params.logprobs) {
        report_logprobs(logits, raw.max, params.num_logprobs, sampled);
    }
    return sampled;
}

std::span<const float> Sampler::adjust(std::span<const float> logits, const SamplingParams& params,
                                       const TokenHistory& history) {
    const bool repetition = params.repetition_penalty != 1.0F;
    const bool output = params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F;
    if (params.logit_bias.empty() && !repetition && !output) {
        return logits;
    }
    adjusted_.assign(logits.begin(), logits.end());
    seen_.resize(logits.size(), 0);
    for (const auto& [token, bias] : params.logit_bias) {
        if (token >= 0 && static_cast<std::size_t>(token) < adjusted_.size()) {
            adjusted_[static_cast<std::size_t>(token)] += bias;
        }
    }
    if (repetition) {
        begin_round();
        penalise_repetition(history.prompt, params.repetition_penalty);
        penalise_repetition(history.output, params.repetition_penalty);
    }
    if (output) {
        begin_round();
        penalise_output(history.output, params);
    }
    return adjusted_;
}

void Sampler::begin_round() {
    if (++round_ == 0) {
        std::fill(seen_.begin(), seen_.end(), 0U);
        round_ = 1;
    }
}

bool Sampler::first_sight(std::int64_t token) {
    std::uint32_t& seen = seen_[static_cast<std::size_t>(token)];
    const bool first = seen != round_;
    seen = round_;
    return first;
}

void Sampler::penalise_repetition(std::span<const std::int64_t> tokens, float penalty) {
    for (std::int64_t token : tokens) {
        if (token < 0 || static_cast<std::size_t>(token) >= adjusted_.size()) {
            continue;
        }
        if (first_sight(token)) {
            float& logit = adjusted_[static_cast<std::size_t>(token)];
            logit = logit > 0.0F ? logit / penalty : logit * penalty;
        }
    }
}

void Sampler::penalise_output(std::span<const std::int64_t> output, const SamplingParams& params) {
    for (std::int64_t token : output) {
        if (token < 0 || static_cast<std::size_t>(token) >= adjusted_.size()) {
            continue;
        }
        float& logit = adjusted_[static_cast<std::size_t>(token)];
        logit -= params.frequency_penalty;
        if (first_sight(token)) {
            logit -= params.presence_penalty;
        }
    }
}

std::int64_t Sampler::draw(std::span<const float> logits, float max, const SamplingParams& params,
                           double uniform) {
    // A temperature near 0 must not make the scale infinite: 0 times infinity is no weight.
    const float scale = std::min(1.0F / params.temperature, 1e30F);
    softmax_weights(logits, max, scale, weights_);
    if (params.top_k > 0 && params.top_k < logits.size()) {
        keep_top_k(params.top_k);
    }
    if (params.top_p < 1.0F) {
        keep_top_p(static_cast<double>(params.top_p) * sum_weights(weights_));
    }
    if (params.min_p > 0.0F) {
        drop_light_weights(weights_, params.min_p, weights_.size());
    }
    return draw_from_weights(uniform);
}

std::int64_t Sampler::draw_from_weights(double uniform) const {
    const std::span<const float> all(weights_);
    double target = uniform * sum_weights(all);
    std::size_t last_begin = 0;
    for (std::size_t begin = 0; begin < all.size(); begin += kLogitChunk) {
        const std::size_t size = std::min(kLogitChunk, all.size() - begin);
        const double sum = sum_weights(all.subspan(begin, size));
        if (target < sum) {
            return static_cast<std::int64_t>(begin + walk(all.subspan(begin, size), target));
        }
        target -= sum;
        last_begin = sum > 0.0 ? begin : last_begin;
    }
    // Rounding carried the target past the end: the last token that has any weight.
    const std::size_t size = std::min(kLogitChunk, all.size() - last_begin);
    return static_cast<std::int64_t>(last_begin + walk(all.subspan(last_begin, size), kBeyondAll));
}

bool Sampler::ranks_before(const Candidate& a, const Candidate& b) {
    return a.weight > b.weight || (a.weight == b.weight && a.token < b.token);
}

// A value that at least `count` values reach: the count-th largest of the chunks' maxima. So the
// k best can be picked from a few thousand values instead of the whole vocabulary.
float Sampler::largest_bound(std::span<const float> values, std::size_t count) {
    chunk_maxima(values, kBoundChunk, maxima_);
    if (count > maxima_.size()) {
        return -std::numeric_limits<float>::infinity();
    }
    const auto nth = maxima_.begin() + static_cast<std::ptrdiff_t>(count - 1);
    std::nth_element(maxima_.begin(), nth, maxima_.end(), std::greater<>());
    return *nth;
}

void Sampler::keep_top_k(std::size_t count) {
    const float least = std::max(largest_bound(weights_, count), kLeastWeight);
    ranked_.clear();
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        if (weights_[i] >= least) {
            ranked_.push_back({weights_[i], static_cast<std::uint32_t>(i)});
        }
    }
    const std::size_t kept = std::min(count, ranked_.size());  // the largest, 1, is there
    const auto last = ranked_.begin() + static_cast<std::ptrdiff_t>(kept - 1);
    std::nth_element(ranked_.begin(), last, ranked_.end(), ranks_before);
    drop_light_weights(weights_, last->weight, last->token);
}

// Sums the weights by size class first, a few classes an octave: only the class in which the sum
// of the better ones passes `target` has to be ranked.
void Sampler::keep_top_p(double target) {
    class_sums_.assign(kNumSizeClasses, 0.0);
    for (float weight : weights_) {
        class_sums_[size_class(weight)] += static_cast<double>(weight);
    }
    double sum = 0.0;
    std::size_t edge = kNumSizeClasses - 1;
    while (edge > 0 && sum + class_sums_[edge] < target) {
        sum += class_sums_[edge--];
    }
    ranked_.clear();
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        if (weights_[i] > 0.0F && size_class(weights_[i]) == edge) {
            ranked_.push_back({weights_[i], static_cast<std::uint32_t>(i)});
        }
    }
    if (ranked_.empty()) {
        return;  // rounding: all of them do not quite reach the target
    }
    const Candidate last = last_within(target - sum);
    drop_light_weights(weights_, last.weight, last.token);
}

// Of ranked_, the one that brings the sum of the better ones to `target`. Halves the range by rank:
// linear on average, where sorting a flat distribution would not be.
Sampler::Candidate Sampler::last_within(double target) {
    auto begin = ranked_.begin();
    auto end = ranked_.end();
    double sum = 0.0;
    while (end - begin > 1) {
        const auto middle = begin + (end - begin) / 2;
        std::nth_element(begin, middle, end, ranks_before);
        double upper = 0.0;
        for (auto it = begin; it != middle; ++it) {
            upper += static_cast<double>(it->weight);
        }
        if (sum + upper >= target) {
            end = middle;
        } else {
            sum += upper;
            begin = middle;
        }
    }
    return *begin;
}

void Sampler::report_logprobs(std::span<const float> logits, float max,
                              std::uint32_t num_alternatives, SampledToken& sampled) {
    softmax_weights(logits, max, 1.0F, weights_);
    const double log_total = std::log(sum_weights(weights_));
    const auto logprob = [&](std::size_t token) {
        return static_cast<float>(static_cast<double>(logits[token] - max) - log_total);
    };
    sampled.logprob = logprob(static_cast<std::size_t>(sampled.token));
    const std::size_t count = std::min(std::size_t{num_alternatives}, logits.size());
    if (count == 0) {
        return;
    }
    const float bound = largest_bound(logits, count);
    ranked_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] >= bound && std::isfinite(logits[i])) {
            ranked_.push_back({logits[i], static_cast<std::uint32_t>(i)});
        }
    }
    const std::size_t kept = std::min(count, ranked_.size());
    std::partial_sort(ranked_.begin(), ranked_.begin() + static_cast<std::ptrdiff_t>(kept),
                      ranked_.end(), ranks_before);
    for (std::size_t i = 0; i < kept; ++i) {
        sampled.top_logprobs.push_back({ranked_[i].token, logprob(ranked_[i].token)});
    }
}

}  // namespace shardline
