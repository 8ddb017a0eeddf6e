#include "transport/local_link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <thread>

#include "base/error.hpp"
#include "transport/protocol.hpp"
#include "unit/transport/chain_harness.hpp"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr Epoch kEpoch{3};

LocalChain make_chain(std::uint32_t num_stages, ChainLog& log, FaultHook hook = {}) {
    std::vector<std::unique_ptr<StageExecutor>> executors;
    for (std::uint32_t stage = 0; stage < num_stages; ++stage) {
        executors.push_back(make_test_executor(stage));
    }
    return LocalChain(std::move(executors), kEpoch, log.callbacks(), std::move(hook));
}

float first_value(const StepResult& result) {
    float value = 0;
    std::memcpy(&value, result.outputs.at(0).bytes.data(), sizeof value);
    return value;
}

// The hook does `fault` to step 2 in stage 1.
FaultHook at_stage_one(Fault fault) {
    return [fault](std::uint32_t stage, const StepPlan& plan) {
        return stage == 1 && to_number(plan.step) == 2 ? fault : Fault{};
    };
}

TEST(LocalChain, StepsComeBackInOrderAndComputed) {
    ChainLog log;
    LocalChain chain = make_chain(3, log);
    EXPECT_EQ(chain.num_stages(), 3U);
    for (std::uint64_t id = 1; id <= 20; ++id) {
        ASSERT_TRUE(chain.send(make_step(kEpoch, id)));
    }
    ASSERT_TRUE(log.wait_results(20, 10s));
    for (std::uint64_t id = 1; id <= 20; ++id) {
        const StepResult result = log.results()[id - 1];
        EXPECT_EQ(to_number(result.step), id);
        EXPECT_EQ(result.status, StepStatus::kDone);
        EXPECT_EQ(first_value(result), expected_value(input_value(id, 0), 3));
        EXPECT_EQ(result.timings.size(), 3U);
    }
    EXPECT_FALSE(chain.send(make_step(Epoch{4}, 21)));
    chain.close();
    EXPECT_FALSE(chain.send(make_step(kEpoch, 21)));
    EXPECT_EQ(log.num_downs(), 0U);
}

TEST(LocalChain, DelayedStepHoldsUpThoseBehindIt) {
    ChainLog log;
    LocalChain chain = make_chain(2, log, at_stage_one({Fault::Kind::kDelay, 200ms}));
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(chain.send(make_step(kEpoch, id)));
    }
    ASSERT_TRUE(log.wait_results(3, 10s));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 200ms);
    EXPECT_EQ(to_number(log.results().back().step), 3U);
}

TEST(LocalChain, DroppedStepHasNoResult) {
    ChainLog log;
    LocalChain chain = make_chain(2, log, at_stage_one({.kind = Fault::Kind::kDrop}));
    for (std::uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(chain.send(make_step(kEpoch, id)));
    }
    ASSERT_TRUE(log.wait_results(2, 10s));
    EXPECT_FALSE(log.wait_results(3, 200ms));
    EXPECT_EQ(to_number(log.results().back().step), 3U);
}

TEST(LocalChain, CorruptedStepComputesSomethingElse) {
    ChainLog log;
    LocalChain chain = make_chain(2, log, at_stage_one({.kind = Fault::Kind::kCorrupt}));
    ASSERT_TRUE(chain.send(make_step(kEpoch, 2)));
    ASSERT_TRUE(log.wait_results(1, 10s));
    EXPECT_NE(first_value(log.results().front()), expected_value(input_value(2, 0), 2));
}

TEST(LocalChain, FailedStepIsReportedOnce) {
    ChainLog log;
    LocalChain chain = make_chain(2, log, at_stage_one({.kind = Fault::Kind::kFail}));
    for (std::uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(chain.send(make_step(kEpoch, id)));
    }
    ASSERT_TRUE(log.wait_results(3, 10s));
    for (const StepResult& result : log.results()) {
        const bool failed = to_number(result.step) == 2;
        EXPECT_EQ(result.status, failed ? StepStatus::kFailed : StepStatus::kDone);
        EXPECT_EQ(result.error.empty(), !failed);
    }
}

// The engine's thread sends; what comes back comes from another one.
TEST(LocalChain, FaultOfTheFirstStageComesFromItsThread) {
    std::thread::id thread_of_result;
    std::promise<void> done;
    ChainCallbacks callbacks;
    callbacks.on_result = [&](StepResult result) {
        EXPECT_EQ(result.status, StepStatus::kFailed);
        EXPECT_THAT(result.error, HasSubstr("stage 0"));
        thread_of_result = std::this_thread::get_id();
        done.set_value();
    };
    std::vector<std::unique_ptr<StageExecutor>> executors;
    executors.push_back(make_test_executor(0));
    LocalChain chain(std::move(executors), kEpoch, callbacks, [](std::uint32_t, const StepPlan&) {
        return Fault{.kind = Fault::Kind::kFail};
    });
    ASSERT_TRUE(chain.send(make_step(kEpoch, 1)));
    ASSERT_EQ(done.get_future().wait_for(10s), std::future_status::ready);
    EXPECT_NE(thread_of_result, std::this_thread::get_id());
}

TEST(LocalChain, LostLinkBringsTheChainDownOnce) {
    ChainLog log;
    LocalChain chain = make_chain(2, log, at_stage_one({.kind = Fault::Kind::kLoseLink}));
    ASSERT_TRUE(chain.send(make_step(kEpoch, 2)));
    ASSERT_TRUE(log.wait_down(10s));
    EXPECT_THAT(log.down_reason(), HasSubstr("stage 1"));
    EXPECT_FALSE(chain.send(make_step(kEpoch, 3)));
    chain.close();
    EXPECT_EQ(log.num_downs(), 1U);
    EXPECT_TRUE(log.results().empty());
}

TEST(LocalChain, CancelledStepIsSkippedInLaterStages) {
    ChainLog log;
    LocalChain* chain_of_hook = nullptr;
    LocalChain chain = make_chain(2, log, [&](std::uint32_t stage, const StepPlan& plan) {
        if (stage == 0 && to_number(plan.step) == 1) {
            chain_of_hook->cancel(StepId{1});  // begun here, so stage 1 skips it
        }
        return Fault{};
    });
    chain_of_hook = &chain;
    ASSERT_TRUE(chain.send(make_step(kEpoch, 1)));
    ASSERT_TRUE(log.wait_results(1, 10s));
    EXPECT_EQ(log.results().front().status, StepStatus::kCancelled);
    EXPECT_EQ(log.results().front().timings.size(), 1U);
}

TEST(LocalChain, NeedsStages) {
    ChainLog log;
    EXPECT_THROW(LocalChain({}, kEpoch, log.callbacks()), Error);
}

}  // namespace
}  // namespace shardline
