#include "transport/grpc_chain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "transport/worker_client.hpp"
#include "unit/transport/chain_harness.hpp"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr Epoch kEpoch{7};

void expect_computed(const StepResult& result, std::uint32_t num_stages) {
    ASSERT_EQ(result.status, StepStatus::kDone) << result.error;
    ASSERT_EQ(result.outputs.size(), 1U);
    const Tensor& tensor = result.outputs.front();
    ASSERT_EQ(tensor.shape.size(), 2U);
    for (std::size_t i = 0; i < tensor.bytes.size() / sizeof(float); ++i) {
        float value = 0;
        std::memcpy(&value, tensor.bytes.data() + i * sizeof(float), sizeof value);
        ASSERT_EQ(value, expected_value(input_value(to_number(result.step), i), num_stages));
    }
    EXPECT_EQ(result.timings.size(), num_stages);
}

class GrpcChainOf : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(GrpcChainOf, StepsComeBackInOrderAndComputed) {
    TestFleet fleet(GetParam());
    ChainLog log;
    const auto chain = fleet.open(kEpoch, log);
    constexpr std::size_t kSteps = 200;
    for (std::size_t id = 1; id <= kSteps; ++id) {
        while (!chain->send(make_step(kEpoch, id))) {
            ASSERT_TRUE(log.wait_results(id - kMaxStepsInFlight, 5s)) << log.down_reason();
        }
    }
    ASSERT_TRUE(log.wait_results(kSteps, 5s)) << log.down_reason();
    const auto results = log.results();
    ASSERT_EQ(results.size(), kSteps);
    for (std::size_t i = 0; i < kSteps; ++i) {
        ASSERT_EQ(to_number(results[i].step), i + 1);
        expect_computed(results[i], GetParam());
    }
    EXPECT_EQ(log.num_downs(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Workers, GrpcChainOf, ::testing::Values(1U, 2U, 3U, 5U));

// Holds steps back at a stage until the test lets them go, and counts those that began.
class Gate final {
public:
    BeforeStep at(std::uint32_t stage) {
        return [this, stage](std::uint32_t here, const StepPlan&) {
            std::unique_lock lock(mutex_);
            ++begun_[here];
            changed_.notify_all();
            if (here == stage) {
                changed_.wait(lock, [&] { return open_; });
            }
        };
    }
    ~Gate() { open(); }

    bool wait_begun(std::uint32_t stage, int steps) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 10s, [&] { return begun_[stage] >= steps; });
    }

    void open() {
        std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::uint32_t, int> begun_;
    bool open_ = false;
};

const StepResult* find_result(const std::vector<StepResult>& results, std::uint64_t id) {
    const StepResult* found = nullptr;
    for (const StepResult& result : results) {
        if (to_number(result.step) == id) {
            EXPECT_EQ(found, nullptr) << "step " << id << " has two results";
            found = &result;
        }
    }
    return found;
}

class CancelAt : public ::testing::TestWithParam<std::uint32_t> {};

// The cancelled step waits behind another one in the stage where it is caught.
TEST_P(CancelAt, StepThatHasNotBegunIsSkipped) {
    Gate gate;
    TestFleet fleet(3, gate.at(GetParam()));
    ChainLog log;
    const auto chain = fleet.open(kEpoch, log);
    for (std::uint64_t id = 1; id <= 4; ++id) {
        ASSERT_TRUE(chain->send(make_step(kEpoch, id)));
    }
    ASSERT_TRUE(gate.wait_begun(GetParam(), 1));
    if (GetParam() > 0) {
        ASSERT_TRUE(gate.wait_begun(GetParam() - 1, 4)) << "step 3 is past the stage before";
    }
    chain->cancel(StepId{3});
    std::this_thread::sleep_for(300ms);  // it has to overtake the steps that wait
    gate.open();
    ASSERT_TRUE(log.wait_results(4, 10s)) << log.down_reason();
    const auto results = log.results();
    ASSERT_EQ(results.size(), 4U);
    for (const std::uint64_t id : {1U, 2U, 4U}) {
        const StepResult* done = find_result(results, id);
        ASSERT_NE(done, nullptr);
        expect_computed(*done, 3);
    }
    const StepResult* cancelled = find_result(results, 3);
    ASSERT_NE(cancelled, nullptr);
    EXPECT_EQ(cancelled->status, StepStatus::kCancelled);
    EXPECT_EQ(cancelled->timings.size(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Stage, CancelAt, ::testing::Values(0U, 1U, 2U));

TEST(GrpcChain, FailureInTheMiddleEndsOnlyThatStep) {
    TestFleet fleet(3, [](std::uint32_t stage, const StepPlan& plan) {
        if (stage == 1 && to_number(plan.step) == 2) {
            throw std::runtime_error("row 1 holds a NaN \xFF");
        }
    });
    ChainLog log;
    const auto chain = fleet.open(kEpoch, log);
    for (std::uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(chain->send(make_step(kEpoch, id)));
    }
    ASSERT_TRUE(log.wait_results(3, 10s)) << log.down_reason();
    const auto results = log.results();
    expect_computed(*find_result(results, 1), 3);
    expect_computed(*find_result(results, 3), 3);
    const StepResult* failed = find_result(results, 2);
    EXPECT_EQ(failed->status, StepStatus::kFailed);
    EXPECT_THAT(failed->error, HasSubstr("row 1 holds a NaN ?"));
    EXPECT_THAT(failed->error, HasSubstr("node1"));
}

TEST(GrpcChain, StepsOfAnotherEpochAndTooManyAreRefused) {
    Gate gate;
    TestFleet fleet(1, gate.at(0));
    ChainLog log;
    const auto chain = fleet.open(kEpoch, log);
    EXPECT_FALSE(chain->send(make_step(Epoch{6}, 1)));
    EXPECT_FALSE(chain->send(make_step(Epoch{8}, 1)));
    for (std::uint64_t id = 1; id <= kMaxStepsInFlight; ++id) {
        ASSERT_TRUE(chain->send(make_step(kEpoch, id)));
    }
    EXPECT_FALSE(chain->send(make_step(kEpoch, kMaxStepsInFlight + 1)));
    gate.open();
    ASSERT_TRUE(log.wait_results(kMaxStepsInFlight, 10s));
    EXPECT_TRUE(chain->send(make_step(kEpoch, kMaxStepsInFlight + 1)));
    ASSERT_TRUE(log.wait_results(kMaxStepsInFlight + 1, 10s));
}

TEST(GrpcChain, LargestStepGoesThrough) {
    TestFleet fleet(2);
    ChainLog log;
    const auto chain = fleet.open(kEpoch, log);
    Step step = make_step(kEpoch, 1, kTestLimits.max_rows);
    // 128 rows of 16 KiB: more than one window of flow control.
    const std::size_t columns = 4096;
    std::vector<float> values(columns * kTestLimits.max_rows);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = input_value(1, i);
    }
    step.activations.front().shape = {kTestLimits.max_rows, columns};
    step.activations.front().bytes.assign(reinterpret_cast<const char*>(values.data()),
                                          values.size() * sizeof(float));
    ASSERT_TRUE(chain->send(std::move(step)));
    ASSERT_TRUE(log.wait_results(1, 10s)) << log.down_reason();
    expect_computed(log.results().front(), 2);
}

TEST(GrpcChain, WorkerThatShutsDownIsNamedAndComesBack) {
    TestFleet fleet(3);
    ChainLog log;
    auto chain = fleet.open(kEpoch, log);
    ASSERT_TRUE(chain->send(make_step(kEpoch, 1)));
    ASSERT_TRUE(log.wait_results(1, 10s));
    fleet.stop_worker(1);
    ASSERT_TRUE(log.wait_down(5s));
    EXPECT_THAT(log.down_reason(), HasSubstr("node1"));
    EXPECT_THAT(log.down_reason(), HasSubstr("shutting down"));
    EXPECT_FALSE(chain->send(make_step(kEpoch, 2)));

    ChainLog second_log;
    GrpcChain absent(fleet.credentials(), fleet.hops(), Epoch{8}, fleet.chain_options(),
                     second_log.callbacks());
    try {
        absent.load({}, {});
        FAIL() << "a worker is missing";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
        EXPECT_THAT(error.what(), HasSubstr(fleet.address(1)));
    }

    fleet.start_worker(1);
    ChainLog third_log;
    GrpcChain again(fleet.credentials(), fleet.hops(), Epoch{9}, fleet.chain_options(),
                    third_log.callbacks());
    const auto loaded = again.load({}, {});
    EXPECT_TRUE(loaded[0].reused);
    EXPECT_FALSE(loaded[1].reused);
    EXPECT_TRUE(loaded[2].reused);
    ASSERT_TRUE(again.send(make_step(Epoch{9}, 1)));
    ASSERT_TRUE(third_log.wait_results(1, 10s));
    expect_computed(third_log.results().front(), 3);
    EXPECT_EQ(log.num_downs(), 1U);
}

TEST(GrpcChain, SecondCoordinatorIsRefusedByNameUntilTheFirstIsGone) {
    TestFleet fleet(1);
    ChainLog log;
    auto chain = fleet.open(kEpoch, log);
    const std::string first = fleet.chain_options().coordinator.name;
    EXPECT_THAT(describe_worker(fleet.address(0), fleet.credentials(), 4s).activity,
                HasSubstr("serving for " + first));

    ChainOptions other = fleet.chain_options();
    other.coordinator = {"den/4711", "another identity"};
    ChainLog other_log;
    const auto attempt = [&](Epoch epoch) {
        return GrpcChain(fleet.credentials(), fleet.hops(), epoch, other, other_log.callbacks())
            .load({}, {});
    };
    try {
        attempt(Epoch{100});
        FAIL() << "the worker is taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
        EXPECT_THAT(error.what(), HasSubstr("busy with the coordinator " + first));
    }
    ASSERT_TRUE(chain->send(make_step(kEpoch, 1)));
    ASSERT_TRUE(log.wait_results(1, 10s)) << "the first one is not disturbed";
    chain.reset();
    EXPECT_NO_THROW(attempt(Epoch{1}));
}

TEST(GrpcChain, NewerEpochOfTheSameCoordinatorTakesOver) {
    TestFleet fleet(2);
    ChainLog old_log;
    const auto old_chain = fleet.open(kEpoch, old_log);
    ChainLog stale_log;
    EXPECT_THROW(fleet.open(Epoch{6}, stale_log), Error);
    ChainLog log;
    const auto chain = fleet.open(Epoch{8}, log);
    ASSERT_TRUE(old_log.wait_down(5s));
    ASSERT_TRUE(chain->send(make_step(Epoch{8}, 1)));
    ASSERT_TRUE(log.wait_results(1, 10s)) << log.down_reason();
}

TEST(GrpcChain, CloseWhileStepsRunReturnsAndSaysNothingMore) {
    std::atomic<int> begun = 0;
    TestFleet fleet(2, [&](std::uint32_t, const StepPlan&) {
        ++begun;
        std::this_thread::sleep_for(50ms);
    });
    ChainLog log;
    const auto chain = fleet.open(kEpoch, log);
    for (std::uint64_t id = 1; id <= 20; ++id) {
        ASSERT_TRUE(chain->send(make_step(kEpoch, id)));
    }
    while (begun == 0) {
        std::this_thread::sleep_for(1ms);
    }
    chain->close();
    const std::size_t results = log.results().size();
    std::this_thread::sleep_for(200ms);
    EXPECT_EQ(log.results().size(), results);
    EXPECT_EQ(log.num_downs(), 0U);
    EXPECT_FALSE(chain->send(make_step(kEpoch, 21)));
    chain->close();
}

TEST(GrpcChain, StuckStepBringsTheChainDownNamingTheWorker) {
    Gate gate;
    TestFleet fleet(2, gate.at(1));
    ChainLog log;
    ChainOptions options = fleet.chain_options();
    options.step_timeout = 1500ms;
    GrpcChain chain(fleet.credentials(), fleet.hops(), kEpoch, options, log.callbacks());
    chain.load({}, {});
    ASSERT_TRUE(chain.send(make_step(kEpoch, 1)));
    ASSERT_TRUE(log.wait_down(10s));
    EXPECT_THAT(log.down_reason(), HasSubstr("node1"));
    EXPECT_THAT(log.down_reason(), HasSubstr("step 1 has not come back"));
    gate.open();
}

TEST(GrpcChain, BadChainsAreRefusedUpFront) {
    TestFleet fleet(1);
    ChainLog log;
    const auto make = [&](std::vector<ChainHop> hops) {
        GrpcChain(fleet.credentials(), std::move(hops), kEpoch, fleet.chain_options(),
                  log.callbacks());
    };
    EXPECT_THROW(make({}), Error);
    EXPECT_THROW(make({{fleet.address(0), fleet.spec(0)}, {fleet.address(0), fleet.spec(1)}}),
                 Error);
    EXPECT_THROW(make({{"unix:/tmp/socket", fleet.spec(0)}}), Error);
    EXPECT_THROW(make({{"host", fleet.spec(0)}}), Error);
    EXPECT_THROW(make({{"host:99999", fleet.spec(0)}}), Error);
    EXPECT_THROW(make({{"dns:///host:7411", fleet.spec(0)}}), Error);
    EXPECT_NO_THROW(make({{"[::1]:7411", fleet.spec(0)}}));
}

}  // namespace
}  // namespace shardline
