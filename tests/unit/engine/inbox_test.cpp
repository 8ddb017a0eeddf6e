#include "engine/inbox.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace shardline {
namespace {

using namespace std::chrono_literals;

StepResult result_of(std::uint64_t step) {
    return {Epoch{1}, StepId{step}, StepStatus::kDone, {}, {}, {}};
}

TEST(Inbox, TakesEverythingAtOnceAndOnlyOnce) {
    Inbox inbox(4);
    inbox.chain_up(Epoch{3});
    EXPECT_EQ(inbox.submit({}), SubmitStatus::kAccepted);
    inbox.result(result_of(1));
    inbox.result(result_of(2));
    inbox.wake_for_cancels();
    auto probe = inbox.probe();
    Mail mail = inbox.take(std::nullopt);
    ASSERT_TRUE(mail.chain);
    EXPECT_TRUE(mail.chain->up);
    EXPECT_EQ(mail.chain->epoch, Epoch{3});
    EXPECT_EQ(mail.submissions.size(), 1U);
    EXPECT_EQ(mail.results.size(), 2U);
    EXPECT_EQ(mail.results[1].step, StepId{2});
    EXPECT_TRUE(mail.cancels);
    EXPECT_FALSE(mail.closed);
    ASSERT_EQ(mail.probes.size(), 1U);
    mail.probes[0].set_value(true);
    EXPECT_TRUE(probe->get());
    const Mail nothing = inbox.take(1ms);
    EXPECT_FALSE(nothing.chain || nothing.cancels || nothing.closed);
    EXPECT_TRUE(nothing.results.empty() && nothing.submissions.empty() && nothing.probes.empty());
}

TEST(Inbox, PlacesAreCountedUntilTheRequestIsClosed) {
    Inbox inbox(2);
    EXPECT_EQ(inbox.submit({}), SubmitStatus::kChainDown);
    inbox.chain_up(Epoch{1});
    EXPECT_EQ(inbox.submit({}), SubmitStatus::kAccepted);
    EXPECT_EQ(inbox.submit({}), SubmitStatus::kAccepted);
    EXPECT_EQ(inbox.submit({}), SubmitStatus::kQueueFull);
    inbox.take(std::nullopt);
    EXPECT_EQ(inbox.submit({}), SubmitStatus::kQueueFull);
    inbox.request_closed({});
    EXPECT_EQ(inbox.submit({}), SubmitStatus::kAccepted);
}

TEST(Inbox, SeveralChangesOfTheChainAreToldAsOne) {
    Inbox inbox(2);
    inbox.chain_up(Epoch{1});
    inbox.take(std::nullopt);
    inbox.chain_down("first");
    inbox.chain_up(Epoch{2});
    Mail mail = inbox.take(std::nullopt);
    EXPECT_TRUE(mail.chain->up);
    EXPECT_EQ(mail.chain->epoch, Epoch{2});
    EXPECT_EQ(mail.chain->lost_because, "first");
    inbox.chain_up(Epoch{3});
    inbox.chain_down("second");
    EXPECT_EQ(inbox.chain_down_reason(), "second");
    mail = inbox.take(std::nullopt);
    EXPECT_FALSE(mail.chain->up);
    EXPECT_EQ(mail.chain->lost_because, "second");
}

TEST(Inbox, ResultsAndProbesAreBounded) {
    Inbox inbox(2);
    EXPECT_FALSE(inbox.probe()) << "the chain is down";
    inbox.chain_up(Epoch{1});
    for (std::uint64_t step = 0; step < 5000; ++step) {
        inbox.result(result_of(step));
        inbox.probe();
    }
    const Mail mail = inbox.take(std::nullopt);
    EXPECT_EQ(mail.results.size(), 1024U);
    EXPECT_EQ(mail.probes.size(), 64U);
}

TEST(Inbox, ClosedTakesNothingMoreAndNeverWaits) {
    Inbox inbox(2);
    inbox.chain_up(Epoch{1});
    EXPECT_EQ(inbox.submit({}), SubmitStatus::kAccepted);
    inbox.close("the end");
    EXPECT_EQ(inbox.submit({}).reason, "the end");
    inbox.chain_up(Epoch{2});
    inbox.chain_down("later");
    inbox.result(result_of(1));
    EXPECT_EQ(inbox.chain_down_reason(), "the end");
    const Mail mail = inbox.take(std::nullopt);
    EXPECT_TRUE(mail.closed);
    EXPECT_EQ(mail.submissions.size(), 1U) << "what came before still counts";
    EXPECT_TRUE(mail.results.empty());
    EXPECT_EQ(mail.chain->epoch, Epoch{1});
    EXPECT_TRUE(inbox.take(std::nullopt).closed);
}

TEST(Inbox, MailWakesTheOneWhoWaits) {
    Inbox inbox(2);
    std::thread sender([&] {
        std::this_thread::sleep_for(20ms);
        inbox.result(result_of(5));
    });
    const Mail mail = inbox.take(std::nullopt);
    EXPECT_EQ(mail.results.size(), 1U);
    sender.join();
}

}  // namespace
}  // namespace shardline
