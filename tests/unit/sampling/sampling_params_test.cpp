#include "sampling/sampling_params.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.hpp"

namespace shardline {
namespace {

constexpr std::uint32_t kVocab = 100;

std::string refusal(const std::function<void(SamplingParams&)>& change) {
    SamplingParams params;
    change(params);
    try {
        params.validate(kVocab);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        return error.what();
    }
    return "accepted";
}

TEST(SamplingParams, DefaultsAndLimitsAreAccepted) {
    EXPECT_EQ(refusal([](SamplingParams&) {}), "accepted");
    EXPECT_EQ(refusal([](SamplingParams& params) {
                  params.temperature = 2.0F;
                  params.min_p = 1.0F;
                  params.repetition_penalty = 10.0F;
                  params.presence_penalty = -2.0F;
                  params.frequency_penalty = 2.0F;
                  params.num_logprobs = kMaxLogprobs;
                  params.logit_bias = {{0, -100.0F}, {99, 100.0F}};
              }),
              "accepted");
}

TEST(SamplingParams, RefusalNamesFieldValueAndRange) {
    EXPECT_EQ(refusal([](SamplingParams& params) { params.temperature = 2.5F; }),
              "temperature is 2.5, must be between 0 and 2");
    EXPECT_EQ(refusal([](SamplingParams& params) { params.temperature = std::nanf(""); }),
              "temperature is nan, must be between 0 and 2");
    EXPECT_EQ(refusal([](SamplingParams& params) { params.top_p = 0.0F; }),
              "top_p is 0, must be above 0 and at most 1");
    EXPECT_EQ(refusal([](SamplingParams& params) { params.min_p = -0.5F; }),
              "min_p is -0.5, must be between 0 and 1");
    EXPECT_EQ(refusal([](SamplingParams& params) { params.repetition_penalty = 0.0F; }),
              "repetition_penalty is 0, must be above 0 and at most 10");
    EXPECT_EQ(refusal([](SamplingParams& params) { params.presence_penalty = 3.0F; }),
              "presence_penalty is 3, must be between -2 and 2");
    EXPECT_EQ(refusal([](SamplingParams& params) { params.frequency_penalty = -3.0F; }),
              "frequency_penalty is -3, must be between -2 and 2");
    EXPECT_EQ(refusal([](SamplingParams& params) { params.num_logprobs = 21; }),
              "top_logprobs is 21, must be between 0 and 20");
}

TEST(SamplingParams, LogitBiasOutsideTheVocabularyOrRangeIsRefused) {
    using Bias = std::vector<std::pair<std::int64_t, float>>;
    const auto with = [](Bias bias) {
        return refusal([&](SamplingParams& params) { params.logit_bias = std::move(bias); });
    };
    EXPECT_EQ(with({{100, 1.0F}}), "logit_bias names token 100, must be between 0 and 99");
    EXPECT_EQ(with({{-1, 1.0F}}), "logit_bias names token -1, must be between 0 and 99");
    EXPECT_EQ(with({{5, 1e9F}}),
              "logit_bias of token 5 is 1000000000, must be between -100 and 100");
    EXPECT_EQ(with({{5, std::nanf("")}}),
              "logit_bias of token 5 is nan, must be between -100 and 100");
    EXPECT_THAT(with(Bias(kMaxLogitBiasEntries + 1, {1, 1.0F})),
                testing::HasSubstr("logit_bias has 1025 entries, at most 1024"));
}

}  // namespace
}  // namespace shardline
