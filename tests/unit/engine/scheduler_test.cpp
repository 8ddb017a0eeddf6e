#include "engine/scheduler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace shardline {
namespace {

using testing::ElementsAre;

std::uint64_t next_owner = 1;

Request request_of(std::size_t prompt, std::uint32_t max_tokens) {
    Request request;
    for (std::size_t i = 0; i < prompt; ++i) {
        request.prompt.push_back(static_cast<std::int64_t>(i % 50));
    }
    request.max_tokens = max_tokens;
    request.owner = next_owner++;  // shares with nobody
    request.handle = std::make_shared<RequestHandle>(max_tokens);
    return request;
}

SchedulerOptions options_of(std::uint32_t max_step_tokens = 512, std::uint32_t num_blocks = 200) {
    return {num_blocks, 1000, max_step_tokens, 64};
}

std::vector<std::uint32_t> span_sizes(const ScheduledStep& step) {
    std::vector<std::uint32_t> sizes;
    for (const Span& span : step.plan.spans) {
        sizes.push_back(span.num_tokens);
    }
    return sizes;
}

// Sends and returns a step, appending `token` where one is sampled.
void play(Scheduler& scheduler, const ScheduledStep& step, std::int64_t token = 1) {
    scheduler.commit(step.spans);
    for (const ScheduledSpan& span : step.spans) {
        scheduler.step_computed(span);
        if (span.sampled_output) {
            scheduler.append(*span.sequence, token);
        }
        scheduler.step_returned(span);
    }
    scheduler.check_integrity();
}

TEST(Scheduler, WholePromptKeepsItsLastTwoRows) {
    Scheduler scheduler(options_of());
    scheduler.add(request_of(5, 10));
    EXPECT_FALSE(scheduler.next_step(1, 1));
    scheduler.admit();
    const auto step = scheduler.next_step(1, 1);
    ASSERT_TRUE(step);
    EXPECT_THAT(span_sizes(*step), ElementsAre(5));
    EXPECT_THAT(step->plan.kept_rows, ElementsAre(4));
    EXPECT_EQ(step->spans[0].sampled_output, 0U);
    EXPECT_THAT(step->inputs[0].shape, ElementsAre(5));
    std::int64_t last = 0;
    std::memcpy(&last, step->inputs[0].bytes.data() + 4 * sizeof last, sizeof last);
    EXPECT_EQ(last, 4);
}

TEST(Scheduler, ATokenTravelsAlone) {
    Scheduler scheduler(options_of());
    scheduler.add(request_of(1, 10));
    scheduler.admit();
    const auto lone = scheduler.next_step(1, 1);
    ASSERT_TRUE(lone);
    EXPECT_THAT(span_sizes(*lone), ElementsAre(1));
    EXPECT_THAT(lone->plan.kept_rows, ElementsAre(0));
    EXPECT_EQ(lone->spans.size(), 1U);
    EXPECT_EQ(lone->spans[0].sampled_output, 0U);
    play(scheduler, *lone);
    scheduler.add(request_of(1, 10));
    scheduler.admit();
    const auto two = scheduler.next_step(1, 1);
    EXPECT_THAT(span_sizes(*two), ElementsAre(1, 1));
    EXPECT_EQ(two->spans.size(), 2U);
}

TEST(Scheduler, AnswersFirstThenPromptChunks) {
    Scheduler scheduler(options_of(20));
    scheduler.add(request_of(3, 10));
    scheduler.admit();
    play(scheduler, *scheduler.next_step(1, 1));
    scheduler.add(request_of(40, 10));
    scheduler.admit();
    const auto step = scheduler.next_step(1, 1);
    // 1 answer + 19 of the prompt fill the budget; the chunk keeps no row.
    EXPECT_THAT(span_sizes(*step), ElementsAre(1, 19));
    EXPECT_THAT(step->plan.kept_rows, ElementsAre(0));
    EXPECT_EQ(step->plan.spans[0].past_len, 3U);
    EXPECT_FALSE(step->spans[1].sampled_output);
}

TEST(Scheduler, NoChunkLeavesOneTokenOver) {
    for (std::uint32_t budget = kLeastStepTokens; budget <= 40; ++budget) {
        for (std::size_t prompt = 2; prompt <= 90; ++prompt) {
            Scheduler scheduler(options_of(budget));
            scheduler.add(request_of(prompt, 2));
            scheduler.admit();
            std::uint32_t computed = 0;
            while (computed < prompt) {
                const auto step = scheduler.next_step(1, 1);
                ASSERT_TRUE(step) << prompt << " tokens in steps of " << budget;
                ASSERT_EQ(step->plan.spans.size(), 1U);
                const Span& span = step->plan.spans[0];
                ASSERT_GE(span.num_tokens, 2U);
                ASSERT_LE(span.num_tokens, budget);
                ASSERT_EQ(span.past_len, computed);
                computed += span.num_tokens;
                ASSERT_EQ(step->plan.kept_rows.size(), computed == prompt ? 1U : 0U);
                play(scheduler, *step);
            }
            ASSERT_EQ(computed, prompt);
        }
    }
}

TEST(Scheduler, AnswersNeverStarvePromptsNorEachOther) {
    Scheduler scheduler(options_of(8, 400));
    for (int i = 0; i < 12; ++i) {
        scheduler.add(request_of(1, 500));
    }
    scheduler.admit();
    scheduler.add(request_of(30, 500));
    scheduler.admit();
    std::map<std::uint64_t, int> turns;
    for (int i = 0; i < 60; ++i) {
        const auto step = scheduler.next_step(1, 1);
        ASSERT_TRUE(step);
        ASSERT_LE(num_rows(step->plan), 8U);
        for (const Span& span : step->plan.spans) {
            turns[to_number(span.sequence)] += static_cast<int>(span.num_tokens);
        }
        play(scheduler, *step);
    }
    EXPECT_GE(turns[13], 30) << "the prompt was read";
    for (std::uint64_t sequence = 1; sequence <= 12; ++sequence) {
        EXPECT_GE(turns[sequence], 20) << "sequence " << sequence;
        EXPECT_LE(turns[sequence], 45) << "sequence " << sequence;
    }
}

TEST(Scheduler, ReadyOnesAreSharedOutAmongTheSteps) {
    Scheduler scheduler(options_of());
    for (int i = 0; i < 7; ++i) {
        scheduler.add(request_of(6, 50));
    }
    scheduler.admit();
    std::vector<ScheduledStep> steps;
    for (std::uint32_t free = 3; free > 0; --free) {
        steps.push_back(*scheduler.next_step(3, free));
        scheduler.commit(steps.back().spans);
    }
    EXPECT_THAT(span_sizes(steps[0]), ElementsAre(6, 6, 6));
    EXPECT_THAT(span_sizes(steps[1]), ElementsAre(6, 6));
    EXPECT_THAT(span_sizes(steps[2]), ElementsAre(6, 6));
    EXPECT_FALSE(scheduler.next_step(3, 1));
    for (const ScheduledStep& step : steps) {
        for (const ScheduledSpan& span : step.spans) {
            scheduler.append(*span.sequence, 1);
            scheduler.step_returned(span);
        }
    }
    std::vector<std::size_t> sizes;
    for (std::uint32_t free = 3; free > 0; --free) {
        const auto step = scheduler.next_step(3, free);
        sizes.push_back(step->spans.size());
        scheduler.commit(step->spans);
    }
    EXPECT_THAT(sizes, ElementsAre(3, 3, 1));
    scheduler.check_integrity();
}

TEST(Scheduler, StepThatWasNotCommittedIsMadeAgain) {
    Scheduler scheduler(options_of(16));
    scheduler.add(request_of(40, 5));
    scheduler.add(request_of(1, 5));
    scheduler.admit();
    const auto first = scheduler.next_step(2, 2);
    const auto again = scheduler.next_step(2, 2);
    EXPECT_EQ(first->plan, again->plan);
    EXPECT_EQ(first->inputs, again->inputs);
    scheduler.check_integrity();
}

TEST(Scheduler, FirstInLineIsNotOvertaken) {
    Scheduler scheduler(options_of(512, 11));  // ten blocks
    scheduler.add(request_of(100, 100));       // four
    scheduler.add(request_of(200, 57));        // seven
    scheduler.add(request_of(10, 10));         // one would fit
    scheduler.admit();
    EXPECT_EQ(scheduler.num_running(), 1U);
    EXPECT_EQ(scheduler.num_waiting(), 2U);
    const auto step = scheduler.next_step(1, 1);
    scheduler.commit(step->spans);
    scheduler.finish(*step->spans[0].sequence);
    scheduler.admit();
    EXPECT_EQ(scheduler.num_running(), 1U) << "its step is still in flight";
    EXPECT_GT(scheduler.blocks().num_used(), 0U);
    scheduler.step_returned(step->spans[0]);
    EXPECT_EQ(scheduler.blocks().num_used(), 0U);
    scheduler.admit();
    EXPECT_EQ(scheduler.num_running(), 2U);
    scheduler.check_integrity();
}

// Two grow until the pool is full: the later one gives way, and computes everything again when the
// other has ended.
TEST(Scheduler, TheNewestGivesWayAndComesBack) {
    Scheduler scheduler(options_of(512, 7));  // six blocks
    scheduler.add(request_of(60, 100));
    scheduler.add(request_of(60, 40));
    scheduler.admit();
    ASSERT_EQ(scheduler.num_running(), 2U);
    while (scheduler.num_preemptions() == 0) {
        play(scheduler, *scheduler.next_step(1, 1));
    }
    EXPECT_EQ(scheduler.num_running(), 1U);
    EXPECT_EQ(scheduler.num_waiting(), 1U);
    Sequence& victim = *scheduler.unfinished().back();
    EXPECT_EQ(victim.id, SequenceId{2});
    EXPECT_TRUE(victim.kv.blocks.empty());
    const std::uint32_t num_answer_tokens = victim.num_answer_tokens();
    EXPECT_GT(num_answer_tokens, 30U);
    scheduler.admit();
    EXPECT_EQ(scheduler.num_running(), 1U) << "no room yet";
    scheduler.finish(*scheduler.unfinished().front());
    scheduler.admit();
    ASSERT_EQ(scheduler.num_running(), 1U);

    // Its first block is still cached; the rest of the prompt is one span, then every token of the
    // answer is one of its own. Only the last row is sampled.
    const auto prompt = scheduler.next_step(1, 1);
    EXPECT_THAT(span_sizes(*prompt), ElementsAre(28));
    EXPECT_EQ(prompt->plan.spans[0].past_len, 32U);
    EXPECT_TRUE(prompt->plan.kept_rows.empty());
    play(scheduler, *prompt);
    const auto answer = scheduler.next_step(1, 1);
    EXPECT_EQ(answer->plan.spans.size(), num_answer_tokens);
    EXPECT_EQ(num_rows(answer->plan), num_answer_tokens);
    EXPECT_THAT(answer->plan.kept_rows, ElementsAre(num_answer_tokens - 1));
    EXPECT_EQ(answer->plan.spans[3].past_len, 63U);
    EXPECT_EQ(answer->plan.spans[3].block_table.size(), 2U);
    EXPECT_EQ(answer->plan.spans[4].block_table.size(), 3U);
    EXPECT_EQ(check_plan(answer->plan, {7, 512, 1000}), "");
    play(scheduler, *answer);
    EXPECT_EQ(victim.num_answer_tokens(), num_answer_tokens + 1);
}

// A pool of six blocks, an older sequence that needs a seventh, and a younger one whose token is on
// its way: it has to give way, the token still counts.
class PreemptedInFlight : public testing::Test {
protected:
    void SetUp() override {
        scheduler_.add(request_of(80, 100));
        scheduler_.add(request_of(40, 100));
        scheduler_.admit();
        ASSERT_EQ(scheduler_.num_running(), 2U);
        play(scheduler_, *scheduler_.next_step(1, 1));
        ScheduledStep step = *scheduler_.next_step(2, 2);
        scheduler_.commit(step.spans);
        in_flight_ = *scheduler_.next_step(2, 1);
        scheduler_.commit(in_flight_.spans);
        younger_ = in_flight_.spans[0].sequence;
        ASSERT_EQ(younger_->id, SequenceId{2});
        while (scheduler_.num_preemptions() == 0) {
            scheduler_.append(*step.spans[0].sequence, 1);
            scheduler_.step_returned(step.spans[0]);
            step = *scheduler_.next_step(2, 1);
            scheduler_.commit(step.spans);
        }
        scheduler_.check_integrity();
    }

    Scheduler scheduler_{options_of(512, 7)};
    ScheduledStep in_flight_;
    Sequence* younger_ = nullptr;
};

TEST_F(PreemptedInFlight, TheTokenCounts) {
    EXPECT_EQ(younger_->status, SequenceStatus::kWaiting);
    scheduler_.append(*younger_, 9);
    scheduler_.step_returned(in_flight_.spans[0]);
    scheduler_.check_integrity();
    EXPECT_EQ(younger_->tokens.back(), 9);
    scheduler_.finish(*scheduler_.unfinished().front());
    EXPECT_EQ(scheduler_.unfinished().size(), 1U);
}

TEST_F(PreemptedInFlight, ItDoesNotRunBeforeTheTokenIsThere) {
    scheduler_.admit();
    EXPECT_EQ(scheduler_.num_running(), 1U);
    EXPECT_EQ(scheduler_.num_waiting(), 1U);
}

TEST_F(PreemptedInFlight, ItMayEndMeanwhile) {
    scheduler_.finish(*younger_);
    scheduler_.check_integrity();
    EXPECT_EQ(scheduler_.num_waiting(), 0U);
    scheduler_.step_returned(in_flight_.spans[0]);
    scheduler_.check_integrity();
    EXPECT_EQ(scheduler_.num_running(), 1U);
}

// An answer of one token ends with the step that computed the prompt: that counts too.
TEST(Scheduler, TheShortestAnswerLeavesItsPromptBehind) {
    Scheduler scheduler(options_of());
    scheduler.add(request_of(100, 1));
    scheduler.admit();
    const auto step = scheduler.next_step(1, 1);
    scheduler.commit(step->spans);
    scheduler.step_computed(step->spans[0]);
    scheduler.finish(*step->spans[0].sequence);
    scheduler.step_returned(step->spans[0]);
    EXPECT_EQ(scheduler.blocks().num_cached(), 3U);
    scheduler.check_integrity();
}

TEST(Scheduler, ASecondRequestSkipsTheCommonBeginning) {
    Scheduler scheduler(options_of());
    scheduler.add(request_of(100, 10));
    scheduler.admit();
    play(scheduler, *scheduler.next_step(1, 1));
    Request again = request_of(150, 10);
    again.owner = next_owner - 2;
    scheduler.add(std::move(again));
    scheduler.admit();
    const auto step = scheduler.next_step(1, 1);
    EXPECT_THAT(span_sizes(*step), ElementsAre(1, 150 - 96));
    EXPECT_EQ(step->plan.spans[1].past_len, 96U);
    EXPECT_EQ(scheduler.num_reused_tokens(), 96U);
}

// What a step that failed should have written is nobody's beginning.
TEST(Scheduler, OnlyWhatWasComputedIsRemembered) {
    Scheduler scheduler(options_of(64));
    scheduler.add(request_of(128, 10));
    scheduler.admit();
    std::vector<ScheduledStep> chunks;
    for (int i = 0; i < 2; ++i) {
        chunks.push_back(*scheduler.next_step(2, 2));
        scheduler.commit(chunks.back().spans);
    }
    scheduler.step_computed(chunks[1].spans[0]);  // results come in any order
    scheduler.step_returned(chunks[1].spans[0]);
    scheduler.finish(*chunks[0].spans[0].sequence);  // the first one failed
    scheduler.step_returned(chunks[0].spans[0]);
    EXPECT_EQ(scheduler.blocks().num_cached(), 0U);
    EXPECT_EQ(scheduler.blocks().num_used(), 0U);
}

TEST(Scheduler, FinishWorksInEveryState) {
    Scheduler scheduler({100, 1000, 16, 3});
    for (int i = 0; i < 4; ++i) {
        scheduler.add(request_of(20, 5));
    }
    scheduler.admit();
    EXPECT_EQ(scheduler.num_waiting(), 1U);
    while (!scheduler.unfinished().empty()) {
        const auto step = scheduler.next_step(1, 1);
        ASSERT_TRUE(step);
        scheduler.commit(step->spans);
        // The last listed: waiting first, then those not begun, then the one in flight.
        scheduler.finish(*scheduler.unfinished().back());
        scheduler.check_integrity();
        for (const ScheduledSpan& span : step->spans) {
            if (span.sampled_output && span.sequence->status == SequenceStatus::kRunning) {
                scheduler.append(*span.sequence, 1);
            }
            scheduler.step_returned(span);
        }
        scheduler.check_integrity();
    }
    EXPECT_EQ(scheduler.num_running(), 0U);
    EXPECT_EQ(scheduler.blocks().num_used(), 0U);
}

TEST(Scheduler, ProbeTouchesTheSpareBlockOnly) {
    const Scheduler scheduler(options_of());
    const ScheduledStep step = scheduler.probe_step();
    EXPECT_THAT(span_sizes(step), ElementsAre(1));
    EXPECT_THAT(step.plan.kept_rows, ElementsAre(0));
    EXPECT_TRUE(step.spans.empty());
    EXPECT_EQ(check_plan(step.plan, {2, 2, 1}), "");
}

}  // namespace
}  // namespace shardline
