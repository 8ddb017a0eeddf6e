// The pool is shared: beginnings are computed once, and when it is too small the newest give way.
// Either way every answer is what it would be alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "engine_rig.hpp"

namespace shardline {
namespace {

Request with_beginning(std::size_t common, std::size_t own, std::uint32_t max_tokens,
                       unsigned seed) {
    Request request = toy_request(own, max_tokens, seed);
    std::vector<std::int64_t> prompt = toy_prompt(common, 4711);
    prompt.insert(prompt.end(), request.prompt.begin(), request.prompt.end());
    request.prompt = std::move(prompt);
    return request;
}

TEST(EngineMemory, ACommonBeginningIsComputedOnce) {
    EngineRig rig;
    const Request cold = with_beginning(200, 10, 20, 1);
    EXPECT_EQ(rig.ask(cold).tokens, rig.expected(cold));
    EXPECT_EQ(rig.engine().stats().reused_tokens, 0U);
    const Request warm = with_beginning(200, 30, 20, 2);
    EXPECT_EQ(rig.ask(warm).tokens, rig.expected(warm));
    EXPECT_EQ(rig.engine().stats().reused_tokens, 192U);
    const Request same = with_beginning(200, 10, 20, 1);
    EXPECT_EQ(rig.ask(same).tokens, rig.expected(same));
    EXPECT_EQ(rig.engine().stats().reused_tokens, 384U);
    Request foreign = with_beginning(200, 10, 20, 1);
    foreign.owner = 7;
    EXPECT_EQ(rig.ask(foreign).tokens, rig.expected(foreign));
    EXPECT_EQ(rig.engine().stats().reused_tokens, 384U);
    rig.expect_idle();
    EXPECT_GT(rig.engine().stats().blocks_cached, 6U);
}

// A conversation: each prompt is the last one, its answer and a new question. The answer's blocks
// were computed token by token, so only the prompt's are found again.
TEST(EngineMemory, AnAnswerIsNotReusedAsAPrompt) {
    EngineRig rig;
    Request turn = toy_request(64, 40, 1);
    for (std::uint64_t i = 0; i < 4; ++i) {
        turn.handle = std::make_shared<RequestHandle>(turn.max_tokens);
        const Answer answer = rig.ask(turn);
        ASSERT_EQ(answer.tokens, rig.expected(turn)) << "turn " << i;
        turn.prompt.insert(turn.prompt.end(), answer.tokens.begin(), answer.tokens.end());
        turn.prompt.push_back(5);
    }
    EXPECT_GT(rig.engine().stats().reused_tokens, 64U + 96U);
}

// Asked for: the next turn begins where the answer ended, all but its last block.
TEST(EngineMemory, AnAnswerIsReusedWhereBitsMayDiffer) {
    EngineOptions options;
    options.reuse_answers = true;
    EngineRig rig(options);
    Request turn = toy_request(64, 70, 1);
    const Answer answer = rig.ask(turn);
    EXPECT_EQ(answer.tokens, rig.expected(turn)) << "from an empty cache";
    turn.prompt.insert(turn.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    turn.prompt.push_back(5);
    turn.handle = std::make_shared<RequestHandle>(turn.max_tokens);
    EXPECT_EQ(rig.ask(turn).finish.reason, FinishReason::kLength);
    EXPECT_EQ(rig.engine().stats().reused_tokens, 128U);
    rig.expect_idle();
}

TEST(EngineMemory, NothingOutlivesTheChain) {
    EngineRig rig;
    const Request request = toy_request(100, 5, 1);
    EXPECT_EQ(rig.ask(request).tokens, rig.expected(request));
    rig.chain().down("a worker left");
    rig.chain().up(2);
    const Request again = toy_request(100, 5, 1);
    EXPECT_EQ(rig.ask(again).tokens, rig.expected(again));
    EXPECT_EQ(rig.engine().stats().reused_tokens, 0U);
}

class EngineMemoryTight : public testing::TestWithParam<std::uint32_t> {};

// Room for a quarter of them.
TEST_P(EngineMemoryTight, ThoseThatGiveWayAnswerAsIfAlone) {
    ToyChainOptions chain;
    chain.num_blocks = 1 + 13;
    chain.max_in_flight = GetParam();
    chain.num_stages = GetParam();
    chain.seed = GetParam();
    EngineOptions options;
    options.max_context = 400;
    options.max_step_tokens = 8 + 16 * (GetParam() - 1);
    EngineRig rig(options, chain);
    std::vector<Request> requests;
    std::vector<std::shared_ptr<RequestHandle>> handles;
    for (unsigned i = 0; i < 24; ++i) {
        requests.push_back(i % 3 == 0 ? with_beginning(40, 1 + i, 90, i)
                                      : toy_request(1 + 3 * i, 60 + i, i));
        requests.back().sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
        requests.back().sampling.seed = i;
        handles.push_back(rig.submit(requests.back()));
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(collect(*handles[i]).tokens, rig.expected(requests[i])) << "request " << i;
    }
    EXPECT_GT(rig.engine().stats().preemptions, 0U);
    rig.expect_idle();
}

INSTANTIATE_TEST_SUITE_P(InFlight, EngineMemoryTight, testing::Range(1U, 5U));

// Lets steps through until one that ran has given way and waits.
void release_until_preempted(EngineRig& rig) {
    const std::uint64_t before = rig.engine().stats().preemptions;
    for (int step = 0; step < 2000; ++step) {
        const EngineStats stats = rig.engine().stats();
        if (stats.preemptions > before && stats.waiting > 0) {
            return;
        }
        rig.chain().release(1);
        ASSERT_TRUE(rig.chain().wait_for_held(1));
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    FAIL() << "nobody gave way";
}

constexpr std::uint32_t kUntilPreempted = 0;

// openvinotoolkit/model_server#4428: whoever leaves, while a prompt or an answer is computed or
// while others have its blocks, leaves alone.
TEST_P(EngineMemoryTight, OneThatLeavesTakesNobodyAlong) {
    ToyChainOptions chain;
    chain.num_blocks = 1 + 10;
    chain.max_in_flight = GetParam();
    chain.num_stages = GetParam();
    EngineOptions options;
    options.max_step_tokens = 16;
    EngineRig rig(options, chain);
    bool left_while_preempted = false;
    for (unsigned leaver = 0; leaver < 8; ++leaver) {
        for (const std::uint32_t num_steps : {1U, 6U, kUntilPreempted}) {
            rig.chain().hold(true);
            std::vector<Request> requests;
            std::vector<std::shared_ptr<RequestHandle>> handles;
            for (unsigned i = 0; i < 8; ++i) {
                requests.push_back(toy_request(20 + i, 60, 100 * leaver + i));
                handles.push_back(rig.submit(requests.back()));
            }
            if (num_steps == kUntilPreempted) {
                ASSERT_NO_FATAL_FAILURE(release_until_preempted(rig));
                // The newest gives way first: the last ones are those that wait.
                left_while_preempted |= leaver >= rig.engine().stats().running;
            } else {
                rig.chain().release(num_steps);
                ASSERT_TRUE(rig.chain().wait_for_held(1));
            }
            handles[leaver]->cancelled = true;
            rig.engine().cancel_soon();
            rig.chain().hold(false);
            const FinishReason reason = collect(*handles[leaver]).finish.reason;
            EXPECT_TRUE(reason == FinishReason::kCancelled || reason == FinishReason::kLength);
            for (unsigned i = 0; i < 8; ++i) {
                if (i != leaver) {
                    EXPECT_EQ(collect(*handles[i]).tokens, rig.expected(requests[i])) << i;
                }
            }
            rig.expect_idle();
        }
    }
    EXPECT_TRUE(left_while_preempted);
}

// ggml-org/llama.cpp#28526, #5420, #15812: the whole prompt is known, its last tokens are computed
// all the same.
TEST(EngineMemory, TheSamePromptThreeTimes) {
    EngineRig rig;
    for (const std::size_t length : {1U, 2U, 31U, 32U, 33U, 34U, 63U, 64U, 65U, 66U, 128U}) {
        const Request request = toy_request(length, 20, static_cast<unsigned>(length));
        for (int time = 0; time < 3; ++time) {
            Request again = request;
            again.handle = std::make_shared<RequestHandle>(again.max_tokens);
            const auto handle = again.handle;
            EXPECT_EQ(rig.ask(again).tokens, rig.expected(request)) << length << ", " << time;
            EXPECT_EQ(handle->num_reused_tokens,
                      time == 0 || length < 2 ? 0 : (length - 2) / 32 * 32)
                << length << ", " << time;
        }
    }
    rig.expect_idle();
}

// One that needs the whole pool gets it, whatever else asks.
TEST(EngineMemory, TheLongestAnswerComesToItsEnd) {
    ToyChainOptions chain;
    chain.num_blocks = 1 + 8;
    EngineOptions options;
    options.max_context = 8 * kBlockTokens + 1;
    EngineRig rig(options, chain);
    const Request longest = toy_request(100, 1000, 1);
    const auto handle = rig.submit(longest);
    std::vector<std::shared_ptr<RequestHandle>> others;
    for (unsigned i = 2; i < 12; ++i) {
        others.push_back(rig.submit(toy_request(50, 100, i)));
    }
    const Answer answer = collect(*handle);
    EXPECT_EQ(answer.tokens.size(), 157U);
    EXPECT_EQ(answer.tokens, rig.expected(longest));
    for (unsigned i = 2; i < 12; ++i) {
        EXPECT_EQ(collect(*others[i - 2]).tokens, rig.expected(toy_request(50, 100, i)));
    }
    rig.expect_idle();
}

}  // namespace
}  // namespace shardline
