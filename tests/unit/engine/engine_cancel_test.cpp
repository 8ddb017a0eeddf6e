#include <gtest/gtest.h>

#include "engine_rig.hpp"

namespace shardline {
namespace {

void cancel(EngineRig& rig, RequestHandle& handle) {
    handle.cancelled = true;
    rig.engine().cancel_soon();
}

TEST(EngineCancel, WaitingRequestLeavesAtOnce) {
    EngineOptions options;
    options.max_sequences = 1;
    EngineRig rig(options);
    rig.chain().hold(true);
    const Request request = toy_request(10, 10, 1);
    auto running = rig.submit(request);
    auto waiting = rig.submit(toy_request(10, 10, 2));
    ASSERT_TRUE(rig.chain().wait_for_held(1));
    cancel(rig, *waiting);
    const Answer answer = collect(*waiting);  // while the chain stands still
    EXPECT_EQ(answer.finish.reason, FinishReason::kCancelled);
    EXPECT_TRUE(answer.tokens.empty());
    EXPECT_EQ(rig.chain().num_cancels(), 0U);
    rig.chain().hold(false);
    EXPECT_EQ(collect(*running).tokens, rig.expected(request));
    rig.expect_idle();
}

TEST(EngineCancel, RunningRequestsBlocksComeBackWithItsStep) {
    EngineRig rig;
    rig.chain().hold(true);
    auto handle = rig.submit(toy_request(70, 10, 3));
    ASSERT_TRUE(rig.chain().wait_for_held(1));
    cancel(rig, *handle);
    EXPECT_EQ(collect(*handle).finish.reason, FinishReason::kCancelled);
    EXPECT_EQ(rig.engine().stats().blocks_used, 3U) << "the step may still write there";
    for (int i = 0; i < 1000 && rig.chain().num_cancels() == 0; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(rig.chain().num_cancels(), 1U);
    rig.chain().hold(false);
    rig.expect_idle();
}

TEST(EngineCancel, DuringAChunkedPromptAllItsStepsAreCancelled) {
    EngineOptions options;
    options.max_step_tokens = 16;
    ToyChainOptions chain;
    chain.max_in_flight = 3;
    EngineRig rig(options, chain);
    rig.chain().hold(true);
    auto handle = rig.submit(toy_request(100, 10, 4));
    ASSERT_TRUE(rig.chain().wait_for_held(3));
    cancel(rig, *handle);
    EXPECT_EQ(collect(*handle).finish.reason, FinishReason::kCancelled);
    rig.chain().hold(false);
    rig.expect_idle();
    EXPECT_EQ(rig.chain().num_cancels(), 3U);
    EXPECT_EQ(rig.chain().plans().size(), 3U) << "no further chunk was sent";
}

TEST(EngineCancel, ChunkThatALaterStepReadsIsNotSkipped) {
    EngineOptions options;
    options.max_step_tokens = 16;
    ToyChainOptions chain;
    chain.max_in_flight = 2;
    EngineRig rig(options, chain);
    rig.chain().hold(true);
    rig.chain().refuse(true);  // until both are there
    const Request stays = toy_request(2, 10, 21);
    auto leaves = rig.submit(toy_request(30, 10, 20));
    auto handle = rig.submit(stays);
    while (rig.engine().stats().running < 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    rig.chain().refuse(false);
    ASSERT_TRUE(rig.chain().wait_for_held(2));
    const std::vector<StepPlan> plans = rig.chain().plans();
    ASSERT_EQ(plans[0].spans.size(), 1U);  // 16 of the long prompt
    ASSERT_EQ(plans[1].spans.size(), 2U);  // 14 of it beside the short one
    cancel(rig, *leaves);
    EXPECT_EQ(collect(*leaves).finish.reason, FinishReason::kCancelled);
    rig.chain().hold(false);
    EXPECT_EQ(collect(*handle).tokens, rig.expected(stays));
    EXPECT_EQ(rig.chain().num_cancels(), 0U);
    rig.expect_idle();
}

TEST(EngineCancel, AtEveryTokenOfTheAnswer) {
    EngineRig rig;
    const std::vector<std::int64_t> whole = rig.expected(toy_request(5, 12, 5));
    for (std::size_t place = 0; place < 12; ++place) {
        rig.chain().hold(true);
        rig.chain().release(static_cast<std::uint32_t>(place));
        auto handle = rig.submit(toy_request(5, 12, 5));
        std::vector<std::int64_t> tokens;
        while (tokens.size() < place) {
            tokens.push_back(handle->events.pop()->token->token);
        }
        ASSERT_TRUE(rig.chain().wait_for_held(1));
        cancel(rig, *handle);
        const Answer answer = collect(*handle);
        EXPECT_EQ(answer.finish.reason, FinishReason::kCancelled);
        EXPECT_TRUE(answer.tokens.empty());
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.begin()));
        rig.chain().hold(false);
        rig.expect_idle();
    }
}

TEST(EngineCancel, NeighbourInTheSameStepGoesOn) {
    ToyChainOptions chain;
    chain.max_in_flight = 1;
    EngineRig rig({}, chain);
    const Request stays = toy_request(6, 30, 6);
    rig.chain().hold(true);
    auto first = rig.submit(toy_request(6, 30, 7));
    auto second = rig.submit(stays);
    rig.chain().release(10);
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(second->events.pop_for(std::chrono::seconds(30)));
    }
    cancel(rig, *first);
    rig.chain().hold(false);
    EXPECT_EQ(collect(*first).finish.reason, FinishReason::kCancelled);
    const Answer answer = collect(*second);
    EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
    const std::vector<std::int64_t> whole = rig.expected(stays);
    EXPECT_EQ(answer.tokens, std::vector(whole.begin() + 5, whole.end()));
    EXPECT_EQ(rig.chain().num_cancels(), 0U);
    rig.expect_idle();
}

TEST(EngineCancel, BeforeSubmitAndAfterTheEnd) {
    EngineRig rig;
    Request request = toy_request(6, 30, 8);
    request.handle->cancelled = true;
    EXPECT_EQ(rig.ask(request).finish.reason, FinishReason::kCancelled);
    Request other = toy_request(6, 3, 9);
    auto handle = rig.submit(other);
    EXPECT_EQ(collect(*handle).tokens.size(), 3U);
    cancel(rig, *handle);
    EXPECT_EQ(rig.ask(toy_request(6, 3, 10)).tokens.size(), 3U);
    EXPECT_FALSE(handle->events.try_pop());
    rig.expect_idle();
}

TEST(EngineCancel, ClosedEventsEndTheSequence) {
    EngineRig rig;
    rig.chain().hold(true);
    auto handle = rig.submit(toy_request(6, 900, 11));
    handle->events.close();
    rig.chain().release(3);
    rig.expect_idle();  // though only three steps could run
}

// openvinotoolkit/model_server#4503
TEST(EngineCancel, FiftyClientsCutAtOnceTwentyTimes) {
    EngineRig rig;
    for (unsigned round = 0; round < 20; ++round) {
        std::vector<std::shared_ptr<RequestHandle>> handles;
        for (unsigned i = 0; i < 50; ++i) {
            handles.push_back(rig.submit(toy_request(1 + i, 60, round * 50 + i)));
        }
        for (const auto& handle : handles) {
            handle->cancelled = true;
        }
        rig.engine().cancel_soon();
        for (const auto& handle : handles) {
            const Answer answer = collect(*handle);
            EXPECT_TRUE(answer.finish.reason == FinishReason::kCancelled ||
                        answer.finish.reason == FinishReason::kLength);
        }
    }
    rig.expect_idle();
    const Request request = toy_request(20, 20, 9999);
    EXPECT_EQ(rig.ask(request).tokens, rig.expected(request));
}

}  // namespace
}  // namespace shardline
