#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "sampling/sampler.hpp"

namespace shardline {
namespace {

constexpr int kDraws = 100'000;

std::vector<float> random_logits(std::size_t size, float spread, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0.0F, spread);
    std::vector<float> logits(size);
    for (float& logit : logits) {
        logit = normal(generator);
    }
    return logits;
}

// The distribution by the book: full sort, double precision.
std::vector<double> exact_distribution(const std::vector<float>& logits,
                                       const SamplingParams& params) {
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    if (params.top_k > 0 && params.top_k < order.size()) {
        order.resize(params.top_k);
    }
    const double max = logits[order[0]];
    std::vector<double> weights;
    for (std::size_t token : order) {
        weights.push_back(std::exp((logits[token] - max) / double{params.temperature}));
    }
    double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (params.top_p < 1.0F) {
        double sum = 0.0;
        std::size_t kept = 0;
        while (kept < weights.size() && sum < params.top_p * total) {
            sum += weights[kept++];
        }
        weights.resize(kept);
    }
    while (weights.back() < params.min_p) {
        weights.pop_back();
    }
    total = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<double> distribution(logits.size(), 0.0);
    for (std::size_t i = 0; i < weights.size(); ++i) {
        distribution[order[i]] = weights[i] / total;
    }
    return distribution;
}

// Chi-square over the tokens expected at least ten times, the rest in one bin; the bound is
// mean + 4.5 standard deviations, far beyond chance for one fixed seed.
void expect_follows(const std::vector<float>& logits, const SamplingParams& params) {
    const std::vector<double> expected = exact_distribution(logits, params);
    std::vector<int> counts(logits.size(), 0);
    Sampler sampler;
    for (int i = 0; i < kDraws; ++i) {
        const auto sampled = sampler.sample(logits, params, {}, static_cast<std::uint64_t>(i));
        ASSERT_TRUE(sampled);
        ++counts[static_cast<std::size_t>(sampled->token)];
    }
    double chi_square = 0.0;
    double rest_expected = 0.0;
    double rest_count = 0.0;
    int bins = 0;
    for (std::size_t token = 0; token < logits.size(); ++token) {
        const double mean = expected[token] * kDraws;
        if (expected[token] == 0.0) {
            ASSERT_EQ(counts[token], 0) << "token " << token << " is filtered out";
        } else if (mean >= 10.0) {
            chi_square += (counts[token] - mean) * (counts[token] - mean) / mean;
            ++bins;
        } else {
            rest_expected += mean;
            rest_count += counts[token];
        }
    }
    if (rest_expected >= 10.0) {
        const double error = rest_count - rest_expected;
        chi_square += error * error / rest_expected;
        ++bins;
    }
    ASSERT_GE(bins, 2);
    const double degrees = bins - 1;
    EXPECT_LT(chi_square, degrees + 4.5 * std::sqrt(2.0 * degrees)) << bins << " bins";
    EXPECT_GT(chi_square, degrees - 4.5 * std::sqrt(2.0 * degrees)) << "too good to be random";
}

SamplingParams at_temperature(float temperature) {
    SamplingParams params;
    params.temperature = temperature;
    params.seed = 20260801;
    return params;
}

TEST(Draw, FollowsTheSoftmaxAtSeveralTemperatures) {
    const std::vector<float> logits = random_logits(250, 2.0F, 1);
    for (float temperature : {0.5F, 1.0F, 2.0F}) {
        expect_follows(logits, at_temperature(temperature));
    }
}

TEST(Draw, FollowsTopK) {
    SamplingParams params = at_temperature(1.0F);
    for (std::uint32_t top_k : {2U, 10U, 100U, 249U}) {
        params.top_k = top_k;
        expect_follows(random_logits(250, 2.0F, 2), params);
    }
}

TEST(Draw, FollowsTopP) {
    SamplingParams params = at_temperature(1.0F);
    for (float top_p : {0.3F, 0.9F, 0.999F}) {
        params.top_p = top_p;
        expect_follows(random_logits(250, 2.0F, 3), params);
        expect_follows(random_logits(250, 0.01F, 4), params);  // nearly flat
    }
}

TEST(Draw, FollowsMinP) {
    SamplingParams params = at_temperature(1.0F);
    for (float min_p : {0.02F, 0.3F}) {
        params.min_p = min_p;
        expect_follows(random_logits(250, 2.0F, 5), params);
    }
}

TEST(Draw, FollowsAllFiltersTogether) {
    SamplingParams params = at_temperature(0.8F);
    params.top_k = 40;
    params.top_p = 0.95F;
    params.min_p = 0.05F;
    expect_follows(random_logits(250, 1.5F, 6), params);
}

TEST(Draw, BiasChangesTheDistributionByItsExponent) {
    std::vector<float> logits = random_logits(50, 1.0F, 7);
    SamplingParams params = at_temperature(1.0F);
    params.logit_bias = {{11, 2.0F}};
    std::vector<float> biased = logits;
    biased[11] += 2.0F;
    Sampler sampler;
    for (std::uint64_t position = 0; position < 1000; ++position) {
        SamplingParams plain = at_temperature(1.0F);
        ASSERT_EQ(sampler.sample(logits, params, {}, position)->token,
                  sampler.sample(biased, plain, {}, position)->token);
    }
}

TEST(Draw, IsAFunctionOfSeedAndPositionAlone) {
    const std::vector<float> logits = random_logits(5000, 2.0F, 8);
    SamplingParams params = at_temperature(1.0F);
    params.top_p = 0.9F;
    Sampler busy;
    std::vector<std::int64_t> forward;
    for (std::uint64_t position = 0; position < 200; ++position) {
        forward.push_back(busy.sample(logits, params, {}, position)->token);
        SamplingParams other = at_temperature(1.7F);  // a neighbour in the batch
        other.seed = position;
        busy.sample(random_logits(300, 1.0F, 9), other, {}, position);
    }
    for (std::uint64_t position = 200; position-- > 0;) {
        Sampler fresh;
        EXPECT_EQ(fresh.sample(logits, params, {}, position)->token, forward[position]);
    }
    EXPECT_GT(std::set<std::int64_t>(forward.begin(), forward.end()).size(), 50U);
    params.seed += 1;
    int same = 0;
    for (std::uint64_t position = 0; position < 200; ++position) {
        same += busy.sample(logits, params, {}, position)->token == forward[position] ? 1 : 0;
    }
    EXPECT_LT(same, 40);
}

TEST(Draw, TopOneAndTinyTemperatureAreGreedy) {
    std::vector<float> logits = random_logits(3000, 2.0F, 10);
    logits[2000] = logits[100] = 50.0F;
    SamplingParams top_one = at_temperature(1.0F);
    top_one.top_k = 1;
    SamplingParams tiny_p = at_temperature(1.0F);
    tiny_p.top_p = 1e-6F;
    Sampler sampler;
    for (std::uint64_t position = 0; position < 100; ++position) {
        EXPECT_EQ(sampler.sample(logits, top_one, {}, position)->token, 100);
        EXPECT_EQ(sampler.sample(logits, tiny_p, {}, position)->token, 100);
    }
    logits[2000] = 49.0F;
    for (float temperature : {1e-3F, 1e-30F, std::numeric_limits<float>::denorm_min()}) {
        EXPECT_EQ(sampler.sample(logits, at_temperature(temperature), {}, 1)->token, 100);
    }
}

TEST(Draw, TiesAtTheEdgeOfTopKGoToTheLowerId) {
    std::vector<float> logits(100, 0.0F);
    logits[50] = 1.0F;
    SamplingParams params = at_temperature(1.0F);
    params.top_k = 3;
    std::set<std::int64_t> drawn;
    Sampler sampler;
    for (std::uint64_t position = 0; position < 1000; ++position) {
        drawn.insert(sampler.sample(logits, params, {}, position)->token);
    }
    EXPECT_EQ(drawn, (std::set<std::int64_t>{0, 1, 50}));
}

TEST(Draw, NanAndMinusInfinityAreNeverDrawn) {
    std::vector<float> logits(2000, -std::numeric_limits<float>::infinity());
    for (std::size_t i = 0; i < logits.size(); i += 2) {
        logits[i] = std::numeric_limits<float>::quiet_NaN();
    }
    logits[1999] = 1.0F;
    logits[1] = 1.5F;
    Sampler sampler;
    for (int kind = 0; kind < 4; ++kind) {
        SamplingParams params = at_temperature(1.0F);
        params.top_k = kind == 1 ? 5 : 0;
        params.top_p = kind == 2 ? 0.999F : 1.0F;
        params.min_p = kind == 3 ? 0.01F : 0.0F;
        std::map<std::int64_t, int> drawn;
        for (std::uint64_t position = 0; position < 300; ++position) {
            ++drawn[sampler.sample(logits, params, {}, position)->token];
        }
        EXPECT_EQ(drawn.size(), 2U) << "kind " << kind;
        EXPECT_GT(drawn[1], 50);
        EXPECT_GT(drawn[1999], 50);
    }
}

}  // namespace
}  // namespace shardline
