#include "engine/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "engine_rig.hpp"

namespace shardline {
namespace {

TEST(Engine, OneSequenceAnswersAsTheModelDoes) {
    EngineRig rig;
    const Request request = toy_request(7, 20, 1);
    const Answer answer = rig.ask(request);
    EXPECT_EQ(answer.tokens, rig.expected(request));
    EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
    rig.expect_idle();
}

TEST(Engine, PromptsOfEveryLengthAroundBlocksAndOne) {
    EngineRig rig;
    for (std::size_t length : {1U, 2U, 3U, 31U, 32U, 33U, 63U, 64U, 65U, 97U}) {
        const Request request = toy_request(length, 5, static_cast<unsigned>(length));
        EXPECT_EQ(rig.ask(request).tokens, rig.expected(request)) << length;
    }
    rig.expect_idle();
}

TEST(Engine, ChunkedEqualsWholeForEveryBudget) {
    const Request request = toy_request(97, 4, 2);
    for (std::uint32_t budget : {4U, 5U, 7U, 16U, 48U, 95U, 96U, 97U, 98U, 512U}) {
        EngineOptions options;
        options.max_step_tokens = budget;
        EngineRig rig(options);
        Request copy = request;
        copy.handle = std::make_shared<RequestHandle>(4);
        EXPECT_EQ(rig.ask(copy).tokens, rig.expected(copy)) << "budget " << budget;
        for (const StepPlan& plan : rig.chain().plans()) {
            EXPECT_LE(num_rows(plan), budget);
        }
    }
}

TEST(Engine, PromptChunksOfOneSequenceFillTheChain) {
    EngineOptions options;
    options.max_step_tokens = 16;
    ToyChainOptions chain;
    chain.max_in_flight = 3;
    EngineRig rig(options, chain);
    rig.chain().hold(true);
    const Request request = toy_request(64, 3, 3);
    auto handle = rig.submit(request);
    ASSERT_TRUE(rig.chain().wait_for_held(3));
    const std::vector<StepPlan> plans = rig.chain().plans();
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(plans[i].spans[0].past_len, 16 * i);
        EXPECT_TRUE(plans[i].kept_rows.empty());
    }
    rig.chain().hold(false);
    EXPECT_EQ(collect(*handle).tokens, rig.expected(request));
}

class EngineDepth : public testing::TestWithParam<std::uint32_t> {};

TEST_P(EngineDepth, ManySequencesAnswerAsAlone) {
    ToyChainOptions chain;
    chain.num_stages = GetParam();
    chain.max_in_flight = GetParam();
    chain.num_blocks = 400;
    EngineOptions options;
    options.max_step_tokens = 64;
    EngineRig rig(options, chain);
    std::vector<Request> requests;
    std::vector<std::shared_ptr<RequestHandle>> handles;
    for (unsigned i = 0; i < 24; ++i) {
        requests.push_back(toy_request(1 + (i * 13) % 70, 1 + (i * 7) % 40, 100 + i));
        requests.back().sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
        requests.back().sampling.repetition_penalty = i % 3 == 0 ? 1.3F : 1.0F;
        requests.back().sampling.seed = i;
    }
    for (const Request& request : requests) {
        handles.push_back(rig.submit(request));
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(collect(*handles[i]).tokens, rig.expected(requests[i])) << "request " << i;
    }
    EXPECT_LE(rig.chain().most_in_flight(), GetParam());
    rig.expect_idle();
}

INSTANTIATE_TEST_SUITE_P(OneToFive, EngineDepth, testing::Range(1U, 6U));

TEST(Engine, ReadySequencesAreSharedOutOverTheStepsInFlight) {
    ToyChainOptions chain;
    chain.max_in_flight = 2;
    chain.num_stages = 2;
    EngineRig rig({}, chain);
    std::vector<std::shared_ptr<RequestHandle>> handles;
    for (unsigned i = 0; i < 8; ++i) {
        handles.push_back(rig.submit(toy_request(4, 50, i)));
    }
    for (const auto& handle : handles) {
        EXPECT_EQ(collect(*handle).tokens.size(), 50U);
    }
    std::uint64_t answers = 0;
    std::uint64_t steps = 0;
    for (const StepPlan& plan : rig.chain().plans()) {
        std::uint32_t singles = 0;
        for (const Span& span : plan.spans) {
            singles += span.num_tokens == 1 ? 1 : 0;
        }
        EXPECT_LE(singles, 4U);
        steps += singles > 0 ? 1 : 0;
        answers += singles;
    }
    EXPECT_GT(answers, steps * 3) << "steps carry a fair share";
}

TEST(Engine, StopTokenEndsTheAnswerAndIsNotAnEvent) {
    EngineRig rig;
    const Request plain = toy_request(9, 30, 4);
    const std::vector<std::int64_t> whole = rig.expected(plain);
    // A token that did not come before: so the first place is the one looked for.
    std::size_t place = 5;
    while (std::find(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(place),
                     whole[place]) != whole.begin() + static_cast<std::ptrdiff_t>(place)) {
        ++place;
    }
    Request request = toy_request(9, 30, 4);
    request.stop_tokens = {kToyVocab - 1 == whole[place] ? 0 : -1, whole[place]};
    const Answer answer = rig.ask(request);
    EXPECT_EQ(answer.finish.reason, FinishReason::kStop);
    EXPECT_EQ(answer.tokens,
              std::vector(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(place)));
    // The stop falls on the very last token allowed: still a stop. One token earlier: length.
    Request last = toy_request(9, static_cast<std::uint32_t>(place) + 1, 4);
    last.stop_tokens = {whole[place]};
    EXPECT_EQ(rig.ask(last).finish.reason, FinishReason::kStop);
    Request before = toy_request(9, static_cast<std::uint32_t>(place), 4);
    before.stop_tokens = {whole[place]};
    EXPECT_EQ(rig.ask(before).finish.reason, FinishReason::kLength);
}

TEST(Engine, ContextLimitsTheAnswerAndRefusesThePrompt) {
    EngineOptions options;
    options.max_context = 40;
    EngineRig rig(options);
    const Request request = toy_request(35, 100'000, 5);
    const Answer answer = rig.ask(request);
    EXPECT_EQ(answer.tokens.size(), 5U);
    EXPECT_EQ(answer.tokens, rig.expected(request));
    EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
    EXPECT_EQ(rig.ask(toy_request(39, 5, 6)).tokens.size(), 1U);
    const SubmitResult refused = rig.engine().submit(toy_request(40, 1, 7));
    EXPECT_EQ(refused.status, SubmitStatus::kTooLong);
    EXPECT_THAT(refused.reason, testing::AllOf(testing::HasSubstr("40 tokens"),
                                               testing::HasSubstr("context of 40")));
}

// Avarok-Cybersecurity/atlas#375: a request that can never fit is refused
TEST(Engine, PoolSmallerThanTheContextIsTheLimitAndIsUsedToTheLastPlace) {
    EngineOptions options;
    options.num_blocks = 4;  // three of them to hand out: 96 places
    EngineRig rig(options);
    const Request request = toy_request(90, 1000, 8);
    const Answer answer = rig.ask(request);
    EXPECT_EQ(answer.tokens.size(), 7U);  // 96 places and the last token, which needs none
    EXPECT_EQ(answer.tokens, rig.expected(request));
    EXPECT_EQ(rig.ask(toy_request(96, 3, 9)).tokens.size(), 1U);
    const SubmitResult refused = rig.engine().submit(toy_request(97, 1, 10));
    EXPECT_EQ(refused.status, SubmitStatus::kTooLong);
    EXPECT_THAT(refused.reason, testing::HasSubstr("97 tokens"));
    rig.expect_idle();
}

// Avarok-Cybersecurity/atlas#375
TEST(Engine, RequestsWaitForBlocksAndAllFinish) {
    EngineOptions options;
    options.num_blocks = 6;  // five: one and a half of these requests
    EngineRig rig(options);
    std::vector<Request> requests;
    std::vector<std::shared_ptr<RequestHandle>> handles;
    for (unsigned i = 0; i < 6; ++i) {
        requests.push_back(toy_request(60, 37, 200 + i));
        handles.push_back(rig.submit(requests.back()));
    }
    for (std::size_t i = 0; i < handles.size(); ++i) {
        EXPECT_EQ(collect(*handles[i]).tokens, rig.expected(requests[i]));
    }
    rig.expect_idle();
}

TEST(Engine, FullQueueRefusesAndRecovers) {
    EngineOptions options;
    options.max_sequences = 2;
    options.max_waiting = 1;
    EngineRig rig(options);
    rig.chain().hold(true);
    std::vector<std::shared_ptr<RequestHandle>> handles;
    for (unsigned i = 0; i < 3; ++i) {
        handles.push_back(rig.submit(toy_request(4, 3, i)));
    }
    const SubmitResult refused = rig.engine().submit(toy_request(4, 3, 9));
    EXPECT_EQ(refused.status, SubmitStatus::kQueueFull);
    EXPECT_THAT(refused.reason, testing::HasSubstr("3 answers"));
    rig.chain().hold(false);
    for (const auto& handle : handles) {
        EXPECT_EQ(collect(*handle).tokens.size(), 3U);
    }
    EXPECT_EQ(rig.ask(toy_request(4, 3, 9)).tokens.size(), 3U);
}

TEST(Engine, MalformedRequestsAreRefusedWithTheReason) {
    EngineRig rig;
    const auto refusal = [&](const std::function<void(Request&)>& change) -> std::string {
        Request request = toy_request(4, 3, 1);
        change(request);
        try {
            rig.engine().submit(std::move(request));
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
            return error.what();
        }
        return "accepted";
    };
    EXPECT_EQ(refusal([](Request& request) { request.prompt.clear(); }),
              "the prompt has no tokens, at least one is needed");
    EXPECT_EQ(refusal([](Request& request) { request.max_tokens = 0; }),
              "max_tokens is 0, must be at least 1");
    EXPECT_EQ(refusal([](Request& request) { request.prompt[1] = kToyVocab; }),
              "prompt token 61 is outside the vocabulary of 61");
    EXPECT_EQ(refusal([](Request& request) { request.prompt[1] = -1; }),
              "prompt token -1 is outside the vocabulary of 61");
    EXPECT_EQ(refusal([](Request& request) { request.sampling.temperature = 9.0F; }),
              "temperature is 9, must be between 0 and 2");
}

TEST(Engine, OptionsOutOfRangeAreNamed) {
    EngineOptions options;
    options.num_blocks = 1;
    options.max_context = 100;
    options.vocab_size = 100;
    try {
        const Engine engine(options);
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "engine option num_blocks is 1, must be at least 2");
    }
}

TEST(Engine, LogprobsArriveWithTheTokens) {
    EngineRig rig;
    Request request = toy_request(5, 4, 11);
    request.sampling.logprobs = true;
    request.sampling.num_logprobs = 3;
    auto handle = rig.submit(request);
    for (int i = 0; i < 4; ++i) {
        const auto event = handle->events.pop_for(std::chrono::seconds(30));
        ASSERT_TRUE(event && event->token && event->token->logprob);
        ASSERT_EQ(event->token->top_logprobs.size(), 3U);
        EXPECT_EQ(event->token->top_logprobs[0].token, event->token->token);
        EXPECT_EQ(event->token->top_logprobs[0].logprob, *event->token->logprob);
        EXPECT_LT(*event->token->logprob, 0.0F);
    }
}

TEST(Engine, StatsCountStepsTokensAndStages) {
    EngineRig rig;
    rig.ask(toy_request(5, 10, 12));
    rig.expect_idle();
    const EngineStats stats = rig.engine().stats();
    EXPECT_EQ(stats.steps, 10U);
    EXPECT_EQ(stats.steps_done, 10U);
    EXPECT_EQ(stats.tokens, 10U);
    EXPECT_EQ(stats.blocks_total, 63U);
    EXPECT_GT(stats.schedule_ms_per_step, 0.0);
    EXPECT_GT(stats.step_ms, 0.0);
    ASSERT_EQ(stats.stages.size(), 2U);
    EXPECT_EQ(stats.stages[1].steps, 10U);
    EXPECT_NEAR(stats.stages[1].execute_ms, 0.02, 1e-9);
    EXPECT_EQ(stats.stages[0].bytes_in, (5 + 9) * sizeof(float));
}

}  // namespace
}  // namespace shardline
