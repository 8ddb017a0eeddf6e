#include "stage/stage_worker.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shardline {
namespace {

using std::chrono::seconds;

constexpr Epoch kEpoch{3};

// Appends a letter to the activation; waits, refuses or throws where a test asks for it.
class LetterExecutor final : public StageExecutor {
public:
    Activations run(const StepPlan& /*plan*/, Activations activations) override {
        started.release();
        if (gated) {
            gate.acquire();
        }
        const std::string& bytes = activations.at(0).bytes;
        if (bytes == "bad") {
            throw std::runtime_error("row 0 holds a NaN");
        }
        activations.at(0).bytes += "!";
        return activations;
    }

    StepLimits limits() const override {
        return {.num_blocks = 4, .max_rows = 8, .max_context = 64};
    }

    std::counting_semaphore<> started{0};
    std::counting_semaphore<> gate{0};
    bool gated = false;
};

// Gathers what leaves a worker.
struct Outlet {
    void forwarded(Step step) {
        std::lock_guard lock(mutex);
        steps.push_back(std::move(step));
        changed.notify_all();
    }
    void ended(StepResult result) {
        std::lock_guard lock(mutex);
        results.push_back(std::move(result));
        changed.notify_all();
    }
    bool wait_for(std::size_t num_steps, std::size_t num_results) {
        std::unique_lock lock(mutex);
        return changed.wait_for(lock, seconds(10), [&] {
            return steps.size() >= num_steps && results.size() >= num_results;
        });
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Step> steps;
    std::vector<StepResult> results;
};

class StageWorkerTest : public testing::Test {
protected:
    void start(bool gated = false) {
        auto owned = std::make_unique<LetterExecutor>();
        executor_ = owned.get();
        executor_->gated = gated;
        worker_ = std::make_unique<StageWorker>(
            1, "15-30", std::move(owned), kEpoch,
            [this](Step step) { outlet_.forwarded(std::move(step)); },
            [this](StepResult result) { outlet_.ended(std::move(result)); });
    }

    static Step step(std::uint64_t id, std::string bytes = "x", Epoch epoch = kEpoch) {
        Step made;
        made.plan.epoch = epoch;
        made.plan.step = StepId{id};
        made.plan.spans.push_back({.sequence = SequenceId{1},
                                   .past_len = 0,
                                   .num_tokens = 1,
                                   .block_table = {BlockId{1}}});
        made.activations.push_back({.name = "boundary.15.0",
                                    .type = ElementType::kU8,
                                    .shape = {1},
                                    .bytes = std::move(bytes)});
        return made;
    }

    Outlet outlet_;
    LetterExecutor* executor_ = nullptr;
    std::unique_ptr<StageWorker> worker_;
};

TEST_F(StageWorkerTest, RunsInOrderAndAppendsTimings) {
    start();
    for (std::uint64_t id = 1; id <= 20; ++id) {
        Step sent = step(id, "step" + std::to_string(id));
        sent.timings.push_back({.stage = 0, .queue_us = 1, .execute_us = 2, .bytes_in = 3});
        ASSERT_TRUE(worker_->push(std::move(sent)));
    }
    ASSERT_TRUE(outlet_.wait_for(20, 0));
    for (std::uint64_t id = 1; id <= 20; ++id) {
        const Step& done = outlet_.steps[id - 1];
        EXPECT_EQ(done.plan.step, StepId{id});
        EXPECT_EQ(done.activations[0].bytes, "step" + std::to_string(id) + "!");
        ASSERT_EQ(done.timings.size(), 2U);
        EXPECT_EQ(done.timings[1].stage, 1U);
        EXPECT_EQ(done.timings[1].bytes_in, id < 10 ? 5U : 6U);
    }
    EXPECT_TRUE(outlet_.results.empty());
}

TEST_F(StageWorkerTest, ACancelOvertakesQueuedSteps) {
    start(true);
    for (std::uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(worker_->push(step(id)));
    }
    executor_->started.acquire();
    worker_->cancel(kEpoch, StepId{2});
    worker_->cancel(kEpoch, StepId{4});    // not yet here
    worker_->cancel(Epoch{2}, StepId{3});  // not of this epoch
    ASSERT_TRUE(worker_->push(step(4)));
    executor_->gate.release(4);
    ASSERT_TRUE(outlet_.wait_for(2, 2));
    EXPECT_EQ(outlet_.steps[0].plan.step, StepId{1});
    EXPECT_EQ(outlet_.steps[1].plan.step, StepId{3});
    for (const StepResult& result : outlet_.results) {
        EXPECT_EQ(result.status, StepStatus::kCancelled);
        EXPECT_TRUE(result.outputs.empty());
    }
    EXPECT_EQ(outlet_.results[0].step, StepId{2});
    EXPECT_EQ(outlet_.results[1].step, StepId{4});
}

TEST_F(StageWorkerTest, ACancelConcernsOneStepOnce) {
    start();
    worker_->cancel(kEpoch, StepId{1});
    ASSERT_TRUE(worker_->push(step(1)));
    ASSERT_TRUE(worker_->push(step(1)));
    ASSERT_TRUE(outlet_.wait_for(1, 1));
    EXPECT_EQ(outlet_.results[0].status, StepStatus::kCancelled);
}

TEST_F(StageWorkerTest, RemembersABoundedNumberOfCancels) {
    start();
    constexpr std::uint64_t kFlood = StageWorker::kMaxCancels + 10;
    for (std::uint64_t id = 1; id <= kFlood; ++id) {
        worker_->cancel(kEpoch, StepId{id});
    }
    ASSERT_TRUE(worker_->push(step(1)));
    ASSERT_TRUE(worker_->push(step(kFlood)));
    ASSERT_TRUE(outlet_.wait_for(1, 1));
    EXPECT_EQ(outlet_.steps[0].plan.step, StepId{1});
    EXPECT_EQ(outlet_.results[0].step, StepId{kFlood});
}

TEST_F(StageWorkerTest, AStaleEpochIsDropped) {
    start();
    ASSERT_TRUE(worker_->push(step(1, "x", Epoch{2})));
    ASSERT_TRUE(outlet_.wait_for(0, 1));
    EXPECT_EQ(outlet_.results[0].status, StepStatus::kCancelled);
    EXPECT_EQ(outlet_.results[0].epoch, Epoch{2});
}

TEST_F(StageWorkerTest, AFailureNamesTheStageAndTheNextStepRuns) {
    start();
    ASSERT_TRUE(worker_->push(step(1, "bad")));
    ASSERT_TRUE(worker_->push(step(2)));
    ASSERT_TRUE(outlet_.wait_for(1, 1));
    EXPECT_EQ(outlet_.results[0].status, StepStatus::kFailed);
    EXPECT_EQ(outlet_.results[0].error, "stage 1 (15-30): row 0 holds a NaN");
    EXPECT_EQ(outlet_.results[0].timings.size(), 1U);
}

TEST_F(StageWorkerTest, APlanBeyondTheLimitsIsNotRun) {
    start();
    Step wild = step(1);
    wild.plan.spans[0].block_table = {BlockId{4}};
    ASSERT_TRUE(worker_->push(std::move(wild)));
    ASSERT_TRUE(outlet_.wait_for(0, 1));
    EXPECT_EQ(outlet_.results[0].status, StepStatus::kFailed);
    EXPECT_EQ(outlet_.results[0].error, "stage 1 (15-30): block 4 is outside the pool of 4");
    EXPECT_FALSE(executor_->started.try_acquire());
}

TEST_F(StageWorkerTest, AFullQueueRefuses) {
    start(true);
    ASSERT_TRUE(worker_->push(step(0)));
    executor_->started.acquire();
    for (std::uint64_t id = 1; id <= StageWorker::kMaxQueuedSteps; ++id) {
        ASSERT_TRUE(worker_->push(step(id)));
    }
    EXPECT_FALSE(worker_->push(step(1000)));
    executor_->gate.release(StageWorker::kMaxQueuedSteps + 1);
    EXPECT_TRUE(outlet_.wait_for(StageWorker::kMaxQueuedSteps + 1, 0));
}

TEST_F(StageWorkerTest, StopDropsWhatIsQueued) {
    start(true);
    ASSERT_TRUE(worker_->push(step(1)));
    ASSERT_TRUE(worker_->push(step(2)));
    executor_->started.acquire();
    std::jthread release_later([this] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        executor_->gate.release(2);
    });
    worker_->stop();
    EXPECT_EQ(outlet_.steps.size(), 1U);
    EXPECT_FALSE(worker_->push(step(4)));
    worker_->stop();
}

}  // namespace
}  // namespace shardline
