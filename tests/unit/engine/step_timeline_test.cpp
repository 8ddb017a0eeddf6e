#include "engine/step_timeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "engine_rig.hpp"

namespace shardline {
namespace {

using std::chrono::microseconds;

constexpr std::chrono::steady_clock::time_point kOrigin{};

StepRecord step_between(std::int64_t sent_us, std::int64_t returned_us,
                        const std::vector<StageTiming>& timings) {
    StepRecord step;
    step.sent = kOrigin + microseconds(sent_us);
    step.returned = kOrigin + microseconds(returned_us);
    step.timings = timings;
    return step;
}

TEST(StepTimeline, SharesOutWhatNoStageAccountsFor) {
    StepTimeline timeline(3, kOrigin);
    const PlacedStep placed =
        timeline.place(step_between(1000, 1100, {{0, 5, 10, 7}, {1, 0, 20, 8}, {2, 15, 10, 9}}));
    EXPECT_EQ(placed.sent_us, 1000);
    EXPECT_EQ(placed.returned_us, 1100);
    ASSERT_EQ(placed.stages.size(), 3U);  // 100 - 60 = 4 hops of 10
    EXPECT_EQ(placed.stages[0].begin_us, 1015);
    EXPECT_EQ(placed.stages[1].begin_us, 1035);
    EXPECT_EQ(placed.stages[2].begin_us, 1080);
    EXPECT_EQ(placed.stages[2].end_us(), 1090);
    EXPECT_EQ(placed.stages[1].timing, (StageTiming{1, 0, 20, 8}));
}

TEST(StepTimeline, BeginsNoSliceBeforeItsPredecessorsEnd) {
    StepTimeline timeline(2, kOrigin);
    timeline.place(step_between(0, 95, {{0, 0, 60, 0}, {1, 0, 5, 0}}));  // stage 0: 10 to 70
    // Alone it would begin at 60: the hops after it get shorter instead.
    const PlacedStep placed = timeline.place(step_between(50, 110, {{0, 0, 10, 0}, {1, 0, 20, 0}}));
    EXPECT_EQ(placed.stages[0].begin_us, 70);
    EXPECT_EQ(placed.stages[1].begin_us, 85);
    EXPECT_EQ(placed.stages[1].end_us(), 105);
}

TEST(StepTimeline, GivesStepsInFlightASlotOfTheirOwn) {
    StepTimeline timeline(1, kOrigin);
    EXPECT_EQ(timeline.place(step_between(0, 10, {})).slot, 0U);
    EXPECT_EQ(timeline.place(step_between(5, 15, {})).slot, 1U);
    EXPECT_EQ(timeline.place(step_between(10, 20, {})).slot, 0U);
    EXPECT_EQ(timeline.place(step_between(12, 30, {})).slot, 2U);
    EXPECT_EQ(timeline.place(step_between(15, 31, {})).slot, 1U);
}

TEST(StepTimeline, BoundsWhatCannotBe) {
    StepTimeline timeline(2, kOrigin);
    const PlacedStep placed = timeline.place(
        step_between(0, 100, {{0, 0xFFFFFFFF, 0xFFFFFFFF, 0}, {1, 0, 5, 0}, {2, 1, 1, 0}}));
    ASSERT_EQ(placed.stages.size(), 2U);  // there is no stage 2
    EXPECT_EQ(placed.stages[0].timing.execute_us, 100U);
    EXPECT_EQ(placed.stages[0].begin_us, 100);
}

// Steps through stages that really work one after another, with hops that nobody measures.
TEST(StepTimeline, KeepsOrderAndDurationsOfAnyPipeline) {
    constexpr std::uint32_t kStages = 4;
    for (unsigned seed = 1; seed <= 50; ++seed) {
        std::mt19937 generator(seed);
        StepTimeline timeline(kStages, kOrigin);
        std::vector<std::int64_t> free_us(kStages, 0);
        std::vector<std::int64_t> track_us(kStages, 0);
        std::int64_t sent_us = 0;
        std::int64_t last_returned_us = 0;
        for (int i = 0; i < 200; ++i) {
            sent_us += dice(generator, 100);
            std::int64_t now_us = sent_us;
            std::vector<StageTiming> timings;
            for (std::uint32_t stage = 0; stage < kStages; ++stage) {
                now_us += dice(generator, 50);
                const std::int64_t begin_us = std::max(now_us, free_us[stage]);
                const std::uint32_t execute_us = dice(generator, 120);
                timings.push_back(
                    {stage, static_cast<std::uint32_t>(begin_us - now_us), execute_us, 0});
                now_us = free_us[stage] = begin_us + execute_us;
            }
            last_returned_us = std::max(last_returned_us, now_us + dice(generator, 50));
            const PlacedStep placed =
                timeline.place(step_between(sent_us, last_returned_us, timings));
            ASSERT_EQ(placed.stages.size(), kStages) << "seed " << seed;
            std::int64_t before_us = placed.sent_us;
            for (std::uint32_t stage = 0; stage < kStages; ++stage) {
                const StageSlice& slice = placed.stages[stage];
                ASSERT_EQ(slice.timing, timings[stage]) << "seed " << seed;
                ASSERT_GE(slice.begin_us, before_us) << "seed " << seed;  // no hop is negative
                ASSERT_GE(slice.begin_us, track_us[stage]) << "seed " << seed;
                before_us = track_us[stage] = slice.end_us();
            }
        }
    }
}

TEST(EngineSteps, AreReportedWholeAndCounted) {
    struct Sums {
        std::uint32_t steps = 0;
        std::uint32_t rows = 0;
        std::uint32_t prompt = 0;
        std::uint32_t answer = 0;
        std::uint32_t running_at_the_end = 1;
    } sums;  // the engine's thread alone touches it until it has stopped
    EngineOptions options;
    options.max_step_tokens = 16;
    options.on_step = [&](const StepRecord& step) {
        ++sums.steps;
        sums.rows += step.num_rows;
        sums.prompt += step.num_prompt_tokens;
        sums.answer += step.num_answer_tokens;
        sums.running_at_the_end = step.num_running;
        EXPECT_LE(step.sent, step.returned);
        EXPECT_EQ(step.timings.size(), 3U);
        EXPECT_EQ(step.num_sequences == 0, step.num_prompt_tokens + step.num_answer_tokens == 0);
    };
    ToyChainOptions chain;
    chain.num_stages = 3;
    std::uint64_t steps_done = 0;
    {
        EngineRig rig(options, chain);
        auto first = rig.submit(toy_request(40, 10, 1));
        auto second = rig.submit(toy_request(1, 5, 2));
        collect(*first);
        collect(*second);
        rig.expect_idle();
        EXPECT_TRUE(rig.engine().probe(std::chrono::seconds(10)));
        rig.engine().stop();
        steps_done = rig.engine().stats().steps_done;
    }
    EXPECT_EQ(sums.steps, steps_done);
    EXPECT_EQ(sums.prompt, 41U);
    EXPECT_EQ(sums.answer, 9U + 4U);  // the last token is not fed back
    EXPECT_EQ(sums.rows, 41U + 13U + 1U);
    EXPECT_EQ(sums.running_at_the_end, 0U);
}

}  // namespace
}  // namespace shardline
