#include "engine/fair_share.hpp"

#include <gtest/gtest.h>

#include "engine/inbox.hpp"
#include "engine/scheduler.hpp"

namespace shardline {
namespace {

TEST(FairShare, WhoComesBackStartsWithAnEvenShare) {
    FairShare share;
    share.opened(1);
    share.served(1, 100);
    share.opened(2);
    EXPECT_EQ(share.rows_of(2), 100.0) << "being away earns nothing";
    share.served(2, 50);
    share.opened(1);
    share.closed(1);
    EXPECT_EQ(share.rows_of(1), 100.0) << "one of two is still open";
    share.closed(1);
    share.opened(1);
    EXPECT_EQ(share.rows_of(1), 125.0) << "150 rows, the last 50 of which for one of two";
}

// Newcomers overtake whoever has had much, but not for ever.
TEST(FairShare, NobodyIsOvertakenForEver) {
    FairShare share;
    share.opened(1);
    share.opened(2);
    share.served(1, 100'000);
    std::uint64_t client = 3;
    while (true) {
        share.opened(client);
        if (share.rows_of(client) >= share.rows_of(1)) {
            break;
        }
        share.served(client, 100);
        share.closed(client++);
        ASSERT_LT(client, 1000U);
    }
    EXPECT_GT(client, 20U);
}

Request request_of(std::uint64_t client, std::size_t prompt = 30) {
    Request request;
    request.client = client;
    request.owner = client;
    request.prompt.assign(prompt, 7);
    request.max_tokens = 5;
    request.handle = std::make_shared<RequestHandle>(request.max_tokens);
    return request;
}

// Runs until nobody is left; who got a first token, in order.
std::vector<std::uint64_t> order_of_first_tokens(Scheduler& scheduler) {
    std::vector<std::uint64_t> order;
    while (true) {
        scheduler.admit();
        const auto step = scheduler.next_step(1, 1);
        if (!step) {
            return order;
        }
        scheduler.commit(step->spans);
        for (const ScheduledSpan& span : step->spans) {
            scheduler.step_computed(span);
            Sequence& sequence = *span.sequence;
            if (span.sampled_output && sequence.num_answer_tokens() == 0) {
                order.push_back(sequence.request.client);
            }
            if (span.sampled_output && sequence.num_answer_tokens() + 1 < 5) {
                scheduler.append(sequence, 1);
            } else if (span.sampled_output) {
                scheduler.finish(sequence);
            }
            scheduler.step_returned(span);
        }
        scheduler.check_integrity();
    }
}

TEST(FairShare, AFloodOfOneClientDoesNotHoldUpAnother) {
    Scheduler scheduler({200, 1000, 512, 2});  // two run at a time
    for (int i = 0; i < 10; ++i) {
        scheduler.add(request_of(1));
    }
    for (int i = 0; i < 3; ++i) {
        scheduler.add(request_of(2));
    }
    const std::vector<std::uint64_t> order = order_of_first_tokens(scheduler);
    ASSERT_EQ(order.size(), 13U);
    const std::vector<std::uint64_t> early(order.begin(), order.begin() + 8);
    EXPECT_EQ(std::count(early.begin(), early.end(), 2U), 3) << "by turns while both wait";
}

TEST(FairShare, AmongPromptsUnderWayTheLeastServedClientComesFirst) {
    Scheduler scheduler({200, 1000, 20, 8});  // 20 rows a step
    scheduler.add(request_of(1, 300));
    scheduler.admit();
    const auto first = scheduler.next_step(1, 1);
    ASSERT_TRUE(first);
    scheduler.commit(first->spans);
    scheduler.step_computed(first->spans.at(0));
    scheduler.step_returned(first->spans.at(0));
    scheduler.add(request_of(1, 30));
    scheduler.add(request_of(2, 30));
    const std::vector<std::uint64_t> order = order_of_first_tokens(scheduler);
    EXPECT_EQ(order.front(), 2U);
}

TEST(FairShare, NoClientTakesTheLastQuarterOfTheLine) {
    Inbox inbox(8);
    inbox.chain_up(Epoch{1});
    for (int i = 0; i < 6; ++i) {
        EXPECT_EQ(inbox.submit(request_of(1)), SubmitStatus::kAccepted);
    }
    const SubmitResult refused = inbox.submit(request_of(1));
    EXPECT_EQ(refused.status, SubmitStatus::kQueueFull);
    EXPECT_EQ(
        refused.reason,
        "6 answers of this client are running or waiting of 6 at most, 1 more were asked for");
    EXPECT_EQ(inbox.submit(request_of(2)), SubmitStatus::kAccepted);
    EXPECT_EQ(inbox.submit(request_of(3)), SubmitStatus::kAccepted);
    EXPECT_EQ(inbox.submit(request_of(4)), SubmitStatus::kQueueFull);
    inbox.request_closed(request_of(1));
    EXPECT_EQ(inbox.submit(request_of(1)), SubmitStatus::kAccepted);
}

}  // namespace
}  // namespace shardline
