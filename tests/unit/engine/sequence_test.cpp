#include "engine/sequence.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardline {
namespace {

Request request_of(std::vector<std::int64_t> prompt, std::uint32_t max_tokens) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.stop_tokens = {7, 9};
    request.handle = std::make_shared<RequestHandle>(max_tokens);
    return request;
}

TEST(Sequence, CountsPromptAndAnswerApart) {
    Sequence sequence(SequenceId{1}, request_of({1, 2, 3}, 10), 100);
    EXPECT_EQ(sequence.num_prompt_tokens, 3U);
    EXPECT_EQ(sequence.num_unscheduled(), 3U);
    EXPECT_EQ(sequence.num_answer_tokens(), 0U);
    sequence.num_scheduled_tokens = 3;
    sequence.tokens.push_back(8);
    EXPECT_EQ(sequence.num_unscheduled(), 1U);
    EXPECT_THAT(sequence.prompt(), testing::ElementsAre(1, 2, 3));
    EXPECT_THAT(sequence.answer(), testing::ElementsAre(8));
}

TEST(Sequence, AnswerIsCutToTheContext) {
    const Sequence roomy(SequenceId{1}, request_of({1, 2, 3}, 10), 100);
    EXPECT_EQ(roomy.max_answer_tokens, 10U);
    const Sequence tight(SequenceId{1}, request_of({1, 2, 3}, 4'000'000'000U), 5);
    EXPECT_EQ(tight.max_answer_tokens, 2U);
}

TEST(Sequence, StopsAtAnyOfItsStopTokensAndSeesTheCancelFlag) {
    const Sequence sequence(SequenceId{1}, request_of({1}, 10), 100);
    EXPECT_TRUE(sequence.stops_at(7));
    EXPECT_TRUE(sequence.stops_at(9));
    EXPECT_FALSE(sequence.stops_at(8));
    EXPECT_FALSE(sequence.cancelled());
    sequence.request.handle->cancelled = true;
    EXPECT_TRUE(sequence.cancelled());
}

}  // namespace
}  // namespace shardline
