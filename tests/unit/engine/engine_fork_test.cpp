// Several answers to one prompt: computed once, shared, and each what it would be alone.

#include <gtest/gtest.h>

#include <algorithm>

#include "engine_rig.hpp"

namespace shardline {
namespace {

constexpr std::uint32_t kAnswers = 5;

// A request and, with the same prompt, those that fork from it.
std::vector<Request> family(std::size_t prompt_length, std::uint32_t max_tokens, unsigned seed) {
    std::vector<Request> all;
    for (unsigned i = 0; i < kAnswers; ++i) {
        Request request = toy_request(prompt_length, max_tokens, seed);
        request.handle = std::make_shared<RequestHandle>(max_tokens);
        request.sampling.temperature = 0.9F;
        request.sampling.seed = seed * 100 + i;
        all.push_back(std::move(request));
    }
    return all;
}

void submit(EngineRig& rig, const std::vector<Request>& all) {
    Request first = all.front();
    for (std::size_t i = 1; i < all.size(); ++i) {
        first.forks.push_back({all[i].sampling, all[i].handle});
    }
    rig.submit(std::move(first));
}

// As above, and the step of its prompt has come to the chain, which keeps it until hold(false).
std::vector<Request> held_family(EngineRig& rig, std::size_t prompt_length, unsigned seed) {
    std::vector<Request> all = family(prompt_length, 30, seed);
    rig.chain().hold(true);
    submit(rig, all);
    EXPECT_TRUE(rig.chain().wait_for_held(1));
    return all;
}

class EngineFork : public testing::TestWithParam<std::size_t> {};

TEST_P(EngineFork, EveryAnswerIsAsAlone) {
    EngineRig rig;
    const std::vector<Request> all = family(GetParam(), 70, 1);
    submit(rig, all);
    for (const Request& request : all) {
        EXPECT_EQ(collect(*request.handle).tokens, rig.expected(request));
    }
    rig.expect_idle();
    std::size_t prompt_rows = 0;
    std::size_t copies = 0;
    for (const StepPlan& plan : rig.chain().plans()) {
        copies += plan.copy_blocks.size();
        for (const Span& span : plan.spans) {
            prompt_rows += span.past_len < GetParam() ? span.num_tokens : 0;
        }
    }
    EXPECT_EQ(prompt_rows, GetParam()) << "computed once for all";
    EXPECT_EQ(copies, GetParam() % kBlockTokens == 0 ? 0 : kAnswers - 1);
}

INSTANTIATE_TEST_SUITE_P(Lengths, EngineFork, testing::Values(1, 2, 31, 32, 33, 64, 90, 200));

// The pool holds a fraction of them, so some find no room to fork into and all take turns.
TEST(EngineForkCrowd, ASmallPoolChangesNothing) {
    ToyChainOptions chain;
    chain.num_blocks = 16;
    chain.max_in_flight = 3;
    EngineOptions options;
    options.max_sequences = 7;
    EngineRig rig(options, chain);
    std::vector<std::vector<Request>> families;
    for (unsigned i = 0; i < 8; ++i) {
        families.push_back(family(10 + 17 * i, 40 + 10 * i, i));
        submit(rig, families.back());
    }
    for (const auto& all : families) {
        for (const Request& request : all) {
            EXPECT_EQ(collect(*request.handle).tokens, rig.expected(request));
        }
    }
    EXPECT_GT(rig.engine().stats().preemptions, 0U);
    rig.expect_idle();
}

TEST(EngineForkCrowd, ALinkThatRefusesGetsTheCopyAgain) {
    EngineRig rig;
    const std::vector<Request> all = held_family(rig, 40, 3);
    rig.chain().refuse(true);
    rig.chain().hold(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    rig.chain().refuse(false);
    for (const Request& request : all) {
        EXPECT_EQ(collect(*request.handle).tokens, rig.expected(request));
    }
    rig.expect_idle();
}

// The first leaves while the prompt is computed: the others' answers still come.
TEST(EngineForkCrowd, WhoLeavesTakesNobodyAlong) {
    EngineRig rig;
    const std::vector<Request> all = held_family(rig, 100, 5);
    for (const std::size_t leaving : {0, 3}) {
        all[leaving].handle->cancelled = true;
    }
    rig.engine().cancel_soon();
    rig.chain().hold(false);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Answer answer = collect(*all[i].handle);
        if (i == 0 || i == 3) {
            EXPECT_EQ(answer.finish.reason, FinishReason::kCancelled);
            EXPECT_TRUE(answer.tokens.empty());
        } else {
            EXPECT_EQ(answer.tokens, rig.expected(all[i]));
        }
    }
    rig.expect_idle();
}

TEST(EngineForkCrowd, EveryoneHearsOfTheEnd) {
    EngineRig rig;
    const std::vector<Request> all = held_family(rig, 100, 7);
    rig.chain().down("a worker left");
    for (const Request& request : all) {
        EXPECT_EQ(collect(*request.handle).finish.error_code, ErrorCode::kUnavailable);
    }
    rig.chain().hold(false);
    rig.chain().up(2);
    rig.expect_idle();
}

// Answers count, not requests: the line is as long whichever way they come.
TEST(EngineForkCrowd, ForksTakeTheirPlacesInTheLine) {
    EngineOptions options;
    options.max_sequences = 2;
    options.max_waiting = 1;
    EngineRig rig(options);
    Request first = toy_request(4, 3, 1);
    for (int i = 0; i < 3; ++i) {
        first.forks.push_back({{}, std::make_shared<RequestHandle>(3)});
    }
    const SubmitResult refused = rig.engine().submit(first);
    EXPECT_EQ(refused.status, SubmitStatus::kQueueFull) << refused.reason;
    first.forks.pop_back();
    const std::vector<Fork> forks = first.forks;
    EXPECT_EQ(rig.ask(first).tokens.size(), 3U);
    for (const Fork& fork : forks) {
        EXPECT_EQ(collect(*fork.handle).tokens.size(), 3U);
    }
    EXPECT_EQ(rig.ask(toy_request(4, 3, 9)).tokens.size(), 3U);
}

}  // namespace
}  // namespace shardline
