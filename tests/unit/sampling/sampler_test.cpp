#include "sampling/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace shardline {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Tokens = std::vector<std::int64_t>;

std::int64_t pick(const std::vector<float>& logits, const SamplingParams& params = {},
                  const Tokens& prompt = {}, const Tokens& output = {}) {
    Sampler sampler;
    const auto sampled = sampler.sample(logits, params, {prompt, output}, 0);
    return sampled ? sampled->token : -1;
}

std::vector<float> random_logits(std::size_t size, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0.0F, 4.0F);
    std::vector<float> logits(size);
    for (float& logit : logits) {
        logit = normal(generator);
    }
    return logits;
}

TEST(Greedy, FindsTheMaximumAtEveryPlaceOfEveryLength) {
    for (std::size_t size : {2U, 15U, 16U, 17U, 511U, 512U, 513U, 1500U}) {
        for (std::size_t place = 0; place < size; ++place) {
            std::vector<float> logits(size, -3.0F);
            logits[place] = -2.0F;
            ASSERT_EQ(pick(logits), static_cast<std::int64_t>(place)) << "of " << size;
        }
    }
}

TEST(Greedy, LowestIdWinsAmongEquals) {
    std::vector<float> logits(2000, 1.0F);
    logits[1999] = logits[700] = logits[690] = 5.0F;
    EXPECT_EQ(pick(logits), 690);
    logits[689] = kNan;
    logits[3] = 5.0F;
    EXPECT_EQ(pick(logits), 3);
}

TEST(Greedy, NanIsNeverChosenAndBrokenRowsAreReported) {
    std::vector<float> logits(600, kNan);
    EXPECT_EQ(pick(logits), -1);
    logits[599] = -7.0F;
    logits[0] = -8.0F;
    EXPECT_EQ(pick(logits), 599);
    EXPECT_EQ(pick(std::vector<float>(600, -kInfinity)), -1);
    EXPECT_EQ(pick(std::vector<float>(600, 0.0F)), -1);
    logits[5] = kInfinity;
    EXPECT_EQ(pick(logits), -1);
    SamplingParams hot;
    hot.temperature = 1.0F;
    EXPECT_EQ(pick(std::vector<float>(600, kNan), hot), -1);
}

TEST(Bias, MovesTheChoiceAndCanBan) {
    SamplingParams params;
    params.logit_bias = {{2, 1.5F}};
    EXPECT_EQ(pick({3.0F, 1.0F, 2.0F}, params), 2);
    params.logit_bias = {{0, -100.0F}};
    EXPECT_EQ(pick({3.0F, 1.0F, 2.0F}, params), 2);
}

TEST(Penalties, RepetitionDividesPositiveAndMultipliesNegativeOncePerToken) {
    SamplingParams params;
    params.repetition_penalty = 2.0F;
    // 4 / 2 = 2 however often token 0 stands there, in prompt and answer together.
    EXPECT_EQ(pick({4.0F, 1.9F}, params, {0, 0, 0}, {0}), 0);
    EXPECT_EQ(pick({4.0F, 2.1F}, params, {0, 0, 0}, {0}), 1);
    EXPECT_EQ(pick({-1.0F, -1.9F}, params, {0}), 1);
    EXPECT_EQ(pick({-1.0F, -2.1F}, params, {}, {0}), 0);
}

TEST(Penalties, PresenceCountsOnceFrequencyEachTimeAndOnlyTheAnswer) {
    SamplingParams presence;
    presence.presence_penalty = 1.0F;
    EXPECT_EQ(pick({4.0F, 2.9F}, presence, {}, {0, 0, 0}), 0);
    EXPECT_EQ(pick({4.0F, 3.1F}, presence, {}, {0, 0, 0}), 1);
    EXPECT_EQ(pick({4.0F, 3.1F}, presence, {0, 0, 0}, {}), 0);
    SamplingParams frequency;
    frequency.frequency_penalty = 1.0F;
    EXPECT_EQ(pick({4.0F, 0.9F}, frequency, {}, {0, 0, 0}), 0);
    EXPECT_EQ(pick({4.0F, 1.1F}, frequency, {}, {0, 0, 0}), 1);
    EXPECT_EQ(pick({4.0F, 3.9F}, frequency, {0, 0, 0}, {}), 0);
}

TEST(Penalties, RepetitionComesBeforeSubtraction) {
    SamplingParams params;
    params.repetition_penalty = 2.0F;
    params.presence_penalty = 1.0F;
    // (8 / 2) - 1 = 3, not (8 - 1) / 2 = 3.5.
    EXPECT_EQ(pick({8.0F, 3.2F}, params, {}, {0}), 1);
    params.logit_bias = {{0, 1.0F}};  // ((8 + 1) / 2) - 1 = 3.5, not (8 / 2) - 1 + 1 = 4
    EXPECT_EQ(pick({8.0F, 3.7F}, params, {}, {0}), 1);
    EXPECT_EQ(pick({8.0F, 3.4F}, params, {}, {0}), 0);
}

TEST(Penalties, ScratchOfOneCallNeverReachesTheNext) {
    Sampler sampler;
    SamplingParams params;
    params.repetition_penalty = 2.0F;
    params.frequency_penalty = 1.0F;
    const std::vector<float> logits = {4.0F, 3.0F, 2.5F};
    const Tokens first = {0};
    const Tokens second = {1};
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(sampler.sample(logits, params, {first, first}, 0)->token, 1);
        EXPECT_EQ(sampler.sample(logits, params, {second, second}, 0)->token, 0);
    }
    std::vector<float> wider(1000, 1.0F);
    wider[999] = 0.5F;
    EXPECT_EQ(sampler.sample(wider, params, {first, first}, 0)->token, 1);
}

TEST(Penalties, HistoryOutsideTheVocabularyIsIgnored) {
    SamplingParams params;
    params.repetition_penalty = 2.0F;
    params.presence_penalty = 1.0F;
    EXPECT_EQ(pick({4.0F, 3.0F}, params, {-1, 2, 1'000'000}, {-5, 7}), 0);
}

TEST(Logprobs, AreTheLogSoftmaxOfTheUntouchedLogits) {
    const std::vector<float> logits = random_logits(5000, 3);
    double total = 0.0;
    for (float logit : logits) {
        total += std::exp(static_cast<double>(logit));
    }
    SamplingParams params;
    params.temperature = 0.3F;
    params.top_k = 3;
    params.logit_bias = {{17, 100.0F}};
    params.logprobs = true;
    params.num_logprobs = 5;
    Sampler sampler;
    const auto sampled = sampler.sample(logits, params, {}, 0);
    ASSERT_TRUE(sampled);
    EXPECT_EQ(sampled->token, 17);
    EXPECT_NEAR(*sampled->logprob, logits[17] - std::log(total), 1e-4);

    std::vector<std::int64_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    ASSERT_EQ(sampled->top_logprobs.size(), 5U);
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(sampled->top_logprobs[i].token, order[i]);
        const float logit = logits[static_cast<std::size_t>(order[i])];
        EXPECT_NEAR(sampled->top_logprobs[i].logprob, logit - std::log(total), 1e-4);
    }
}

TEST(Logprobs, TiesAreSortedByIdAndSmallVocabulariesGiveWhatTheyHave) {
    Sampler sampler;
    SamplingParams params;
    params.logprobs = true;
    params.num_logprobs = 20;
    const std::vector<float> logits = {1.0F, 2.0F, 2.0F, kNan, -kInfinity};
    const auto sampled = sampler.sample(logits, params, {}, 0);
    ASSERT_TRUE(sampled);
    ASSERT_EQ(sampled->top_logprobs.size(), 3U);
    EXPECT_EQ(sampled->top_logprobs[0].token, 1);
    EXPECT_EQ(sampled->top_logprobs[1].token, 2);
    EXPECT_EQ(sampled->top_logprobs[2].token, 0);
    params.logprobs = false;
    EXPECT_FALSE(sampler.sample(logits, params, {}, 0)->logprob);
}

}  // namespace
}  // namespace shardline
