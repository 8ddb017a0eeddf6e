#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <limits>

#include "base/error.hpp"
#include "engine_rig.hpp"

namespace shardline {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

void expect_unavailable(const Answer& answer, const std::string& reason) {
    EXPECT_EQ(answer.finish.reason, FinishReason::kError);
    EXPECT_EQ(answer.finish.error_code, ErrorCode::kUnavailable);
    EXPECT_EQ(answer.finish.error, reason);
}

TEST(EngineChain, RefusesUntilTheChainIsUp) {
    EngineRig rig({}, {}, false);
    EXPECT_FALSE(rig.engine().chain_is_up());
    const SubmitResult refused = rig.engine().submit(toy_request(4, 4, 1));
    EXPECT_EQ(refused.status, SubmitStatus::kChainDown);
    EXPECT_EQ(refused.reason, "the chain has not come up yet");
    rig.chain().up(7);
    EXPECT_TRUE(rig.engine().chain_is_up());
    EXPECT_EQ(rig.engine().chain_down_reason(), "");
    EXPECT_EQ(rig.ask(toy_request(4, 4, 1)).tokens.size(), 4U);
}

TEST(EngineChain, GoingDownEndsEveryStateAndComingUpServesAgain) {
    EngineOptions options;
    options.max_sequences = 2;
    options.max_step_tokens = 16;
    EngineRig rig(options);
    for (std::uint64_t round = 0; round < 6; ++round) {
        rig.chain().hold(true);
        auto answering = rig.submit(toy_request(5, 40, 2));
        rig.chain().release(static_cast<std::uint32_t>(round));
        auto reading = rig.submit(toy_request(60, 40, 3));
        auto waiting = rig.submit(toy_request(5, 40, 4));
        ASSERT_TRUE(rig.chain().wait_for_held(1));
        rig.chain().down("worker b is gone");
        expect_unavailable(collect(*answering), "worker b is gone");
        expect_unavailable(collect(*reading), "worker b is gone");
        expect_unavailable(collect(*waiting), "worker b is gone");
        const SubmitResult refused = rig.engine().submit(toy_request(4, 4, 1));
        EXPECT_EQ(refused.status, SubmitStatus::kChainDown);
        EXPECT_EQ(refused.reason, "worker b is gone");
        rig.expect_idle();
        rig.chain().hold(false);
        rig.chain().up(2 + round);
        const Request request = toy_request(40, 20, 5);
        EXPECT_EQ(rig.ask(request).tokens, rig.expected(request));
        rig.expect_idle();
    }
}

TEST(EngineChain, DownAndUpInOneGoStillEndsWhatRan) {
    EngineRig rig;
    rig.chain().hold(true);
    auto handle = rig.submit(toy_request(5, 40, 6));
    ASSERT_TRUE(rig.chain().wait_for_held(1));
    rig.chain().down("short cut");
    rig.chain().up(2);
    expect_unavailable(collect(*handle), "short cut");
    auto again = rig.submit(toy_request(5, 4, 6));
    ASSERT_TRUE(rig.chain().wait_for_held(1));
    rig.chain().up(3);
    expect_unavailable(collect(*again), "the chain was set up anew");
    rig.chain().hold(false);
    EXPECT_EQ(rig.ask(toy_request(5, 4, 6)).tokens.size(), 4U);
}

TEST(EngineChain, StaleDoubleAndUnknownResultsAreDropped) {
    EngineRig rig;
    const auto intrude = [&](std::uint64_t epoch, std::uint64_t step) {
        rig.engine().step_done(
            {Epoch{epoch}, StepId{step}, StepStatus::kFailed, "intruder", {}, {}});
    };
    rig.chain().set_tamper([&](const Step& step, StepResult&) {
        intrude(to_number(step.plan.epoch) + 1, to_number(step.plan.step));
        intrude(to_number(step.plan.epoch), to_number(step.plan.step) - 1);
        intrude(to_number(step.plan.epoch), to_number(step.plan.step) + 1000);
    });
    const Request request = toy_request(12, 30, 7);
    EXPECT_EQ(rig.ask(request).tokens, rig.expected(request));
}

TEST(EngineChain, FailedStepEndsItsSequencesOnly) {
    ToyChainOptions chain;
    chain.max_in_flight = 2;
    EngineRig rig({}, chain);
    const Request fails = toy_request(6, 40, 8);
    const Request stays = toy_request(7, 40, 9);
    std::atomic<std::uint64_t> victim = 0;
    rig.chain().set_tamper([&](const Step& step, StepResult& result) {
        for (const Span& span : step.plan.spans) {
            if (to_number(span.sequence) == victim && span.past_len == 20) {
                result = {step.plan.epoch,
                          step.plan.step,
                          StepStatus::kFailed,
                          "stage 1 of 2 (15-30 on CPU): out of memory",
                          {},
                          {}};
            }
        }
    });
    rig.chain().hold(true);
    auto first = rig.submit(fails);
    ASSERT_TRUE(rig.chain().wait_for_held(1));
    victim = to_number(rig.chain().plans()[0].spans[0].sequence);
    auto second = rig.submit(stays);
    ASSERT_TRUE(rig.chain().wait_for_held(2));
    rig.chain().hold(false);
    const Answer failed = collect(*first);
    EXPECT_EQ(failed.finish.reason, FinishReason::kError);
    EXPECT_EQ(failed.finish.error_code, ErrorCode::kInternal);
    EXPECT_EQ(failed.finish.error, "stage 1 of 2 (15-30 on CPU): out of memory");
    EXPECT_EQ(failed.tokens.size(), 15U);
    EXPECT_EQ(collect(*second).tokens, rig.expected(stays));
    rig.expect_idle();
}

TEST(EngineChain, OutputsThatDoNotFitFailTheStep) {
    EngineRig rig;
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const auto fill = [](StepResult& result, float value) {
        std::string& bytes = result.outputs.at(0).bytes;
        for (std::size_t at = 0; at < bytes.size(); at += sizeof value) {
            std::memcpy(bytes.data() + at, &value, sizeof value);
        }
    };
    const std::vector<std::pair<std::string, std::function<void(StepResult&)>>> cases = {
        {"of shape", [](StepResult& result) { result.outputs[0].shape[0] += 1; }},
        {"of shape", [](StepResult& result) { result.outputs[0].bytes.resize(40); }},
        {"of type i32", [](StepResult& result) { result.outputs[0].type = ElementType::kI32; }},
        {"0 tensors", [](StepResult& result) { result.outputs.clear(); }},
        {"without a distribution", [&](StepResult& result) { fill(result, kNan); }},
        {"without a distribution", [&](StepResult& result) { fill(result, 0.0F); }},
        {"cancelled on its way",
         [](StepResult& result) { result.status = StepStatus::kCancelled; }},
        {"a stage failed", [](StepResult& result) { result.status = StepStatus::kFailed; }},
    };
    for (const auto& [text, damage] : cases) {
        std::atomic<int> steps = 0;
        rig.chain().set_tamper([&, &change = damage](const Step&, StepResult& result) {
            if (++steps == 4) {
                change(result);
            }
        });
        const Answer answer = rig.ask(toy_request(5, 20, 10));
        EXPECT_EQ(answer.finish.reason, FinishReason::kError);
        EXPECT_THAT(answer.finish.error, HasSubstr(text));
        EXPECT_EQ(answer.tokens.size(), 3U);
        rig.chain().set_tamper(nullptr);
        EXPECT_EQ(rig.ask(toy_request(5, 3, 10)).tokens.size(), 3U);
    }
    rig.expect_idle();
}

TEST(EngineChain, RefusedStepIsSentAgain) {
    EngineRig rig;
    rig.chain().refuse(true);
    const Request request = toy_request(33, 9, 11);
    auto handle = rig.submit(request);
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(rig.engine().stats().steps, 0U);
    rig.chain().refuse(false);
    EXPECT_EQ(collect(*handle).tokens, rig.expected(request));
}

TEST(EngineChain, LinkThatRefusesForLongEndsTheRequests) {
    EngineRig rig;
    rig.chain().refuse(true);
    auto handle = rig.submit(toy_request(33, 9, 12));
    expect_unavailable(collect(*handle), "the chain takes no more steps");
    rig.chain().refuse(false);
    EXPECT_EQ(rig.ask(toy_request(4, 4, 1)).tokens.size(), 4U);
}

class ThrowingLink final : public StageLink {
public:
    bool send(Step) override { throw std::runtime_error("no memory"); }
    void cancel(Epoch, StepId) override {}
    std::uint32_t max_in_flight() const override { return 1; }
};

TEST(EngineChain, LinkThatThrowsLeavesNobodyWaiting) {
    ThrowingLink link;
    EngineOptions options{10, 100, kToyVocab, 16, 4, 4};
    Engine engine(options);
    engine.start(link);
    engine.chain_up(Epoch{1});
    Request request = toy_request(4, 4, 1);
    auto handle = request.handle;
    EXPECT_EQ(engine.submit(std::move(request)), SubmitStatus::kAccepted);
    const Answer answer = collect(*handle);
    EXPECT_EQ(answer.finish.reason, FinishReason::kError);
    EXPECT_EQ(answer.finish.error, "the engine stopped: no memory");
    const SubmitResult refused = engine.submit(toy_request(4, 4, 2));
    EXPECT_EQ(refused.status, SubmitStatus::kChainDown);
    EXPECT_EQ(refused.reason, "the engine stopped: no memory");
    EXPECT_FALSE(engine.probe(10ms));
    engine.stop();
}

TEST(EngineProbe, RunsTheChainWhenNothingElseDoes) {
    EngineRig rig({}, {}, false);
    EXPECT_FALSE(rig.engine().probe(10ms)) << "the chain is down";
    rig.chain().up(1);
    EXPECT_TRUE(rig.engine().probe(10s));
    ASSERT_EQ(rig.chain().plans().size(), 1U);
    EXPECT_EQ(rig.chain().plans()[0].spans.size(), 1U);
    rig.chain().hold(true);
    EXPECT_FALSE(rig.engine().probe(30ms)) << "no step progresses";
    rig.chain().hold(false);
    rig.chain().set_tamper([](const Step&, StepResult& result) { result.outputs.clear(); });
    EXPECT_FALSE(rig.engine().probe(10s)) << "what comes back is not logits";
    rig.chain().set_tamper(nullptr);
    rig.chain().hold(true);
    auto pending = std::async(std::launch::async, [&] { return rig.engine().probe(30s); });
    ASSERT_TRUE(rig.chain().wait_for_held(1));
    rig.chain().down("gone");
    EXPECT_FALSE(pending.get());
}

TEST(EngineProbe, FullEngineIsStillReady) {
    EngineOptions options;
    options.num_blocks = 3;
    options.max_sequences = 1;
    options.max_waiting = 0;
    ToyChainOptions chain;
    chain.max_in_flight = 1;
    EngineRig rig(options, chain);
    auto handle = rig.submit(toy_request(30, 30, 1));
    EXPECT_TRUE(rig.engine().probe(10s));
    EXPECT_EQ(collect(*handle).tokens.size(), 30U);
}

TEST(EngineStop, EndsWaitingAndRunningAndStaysStopped) {
    EngineOptions options;
    options.max_sequences = 1;
    EngineRig rig(options);
    rig.chain().hold(true);
    auto running = rig.submit(toy_request(30, 30, 1));
    auto waiting = rig.submit(toy_request(30, 30, 2));
    ASSERT_TRUE(rig.chain().wait_for_held(1));
    rig.engine().stop();
    EXPECT_EQ(collect(*running).finish.reason, FinishReason::kCancelled);
    EXPECT_EQ(collect(*waiting).finish.reason, FinishReason::kCancelled);
    EXPECT_EQ(rig.chain().num_cancels(), 1U);
    EXPECT_EQ(rig.engine().stats().blocks_used, 0U);
    rig.chain().hold(false);  // the late result finds nobody
    const SubmitResult refused = rig.engine().submit(toy_request(4, 4, 3));
    EXPECT_EQ(refused.status, SubmitStatus::kChainDown);
    EXPECT_EQ(refused.reason, "the engine is stopped");
    EXPECT_FALSE(rig.engine().probe(10ms));
    rig.engine().chain_up(Epoch{9});
    EXPECT_FALSE(rig.engine().chain_is_up());
    rig.engine().stop();
}

TEST(EngineStop, WhileClientsSubmit) {
    for (int round = 0; round < 20; ++round) {
        EngineRig rig;
        std::vector<std::future<void>> clients;
        for (unsigned client = 0; client < 4; ++client) {
            clients.push_back(std::async(std::launch::async, [&rig, client] {
                for (unsigned i = 0; i < 50; ++i) {
                    Request request = toy_request(5, 5, client * 100 + i);
                    auto handle = request.handle;
                    if (rig.engine().submit(std::move(request)) != SubmitStatus::kAccepted) {
                        return;
                    }
                    collect(*handle);  // fails when nothing comes
                }
            }));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
        rig.engine().stop();
    }
}

}  // namespace
}  // namespace shardline
