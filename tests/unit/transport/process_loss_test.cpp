// Workers in processes of their own, which are killed and stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <thread>

#include "base/platform.hpp"
#include "unit/transport/chain_harness.hpp"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto kLossLimit = 5s;  // what clients are promised

class ProcessLossTest : public ::testing::Test {
protected:
    void SetUp() override {
        directory_ = fleet_.model_directory() / "credentials";
        save_credentials(make_node_credentials(fleet_.fleet(), "child", 2), directory_);
        for (int i = 0; i < 2; ++i) {
            start(i, "0");
        }
    }

    void start(std::size_t index, const std::string& port) {
        const auto program = executable_path().parent_path() / "transport_test_worker";
        auto child = ChildProcess::spawn({program.string(), directory_.string(),
                                          fleet_.model_directory().string(),
                                          "child" + std::to_string(index), port});
        const auto line = child.read_line(30s);
        ASSERT_TRUE(line) << "the worker does not start";
        children_.resize(2);
        children_[index] = std::make_unique<ChildProcess>(std::move(child));
        ports_[index] = *line;
    }

    std::vector<ChainHop> hops() const {
        return {{"127.0.0.1:" + ports_[0], fleet_.spec(0)},
                {"127.0.0.1:" + ports_[1], fleet_.spec(1)}};
    }

    std::unique_ptr<GrpcChain> open(Epoch epoch, ChainLog& log) const {
        auto chain = std::make_unique<GrpcChain>(fleet_.credentials(), hops(), epoch,
                                                 fleet_.chain_options(), log.callbacks());
        chain->load({}, {});
        return chain;
    }

    // Sends a signal to worker `index` and expects the chain to say so in time.
    void expect_loss(std::size_t index, int signal, ChainLog& log) {
        const auto begin = std::chrono::steady_clock::now();
        ASSERT_EQ(kill(children_[index]->pid(), signal), 0);
        ASSERT_TRUE(log.wait_down(kLossLimit));
        const auto took = std::chrono::steady_clock::now() - begin;
        EXPECT_THAT(log.down_reason(), HasSubstr("child" + std::to_string(index)));
        RecordProperty("loss_ms", std::to_string(took / 1ms));
    }

    TestFleet fleet_{0};
    std::filesystem::path directory_;
    std::vector<std::unique_ptr<ChildProcess>> children_;
    std::string ports_[2];
};

TEST_F(ProcessLossTest, KilledWorkerIsNoticedAndReplaced) {
    ChainLog log;
    auto chain = open(Epoch{1}, log);
    ASSERT_TRUE(chain->send(make_step(Epoch{1}, 1)));
    ASSERT_TRUE(log.wait_results(1, 10s));
    expect_loss(1, SIGKILL, log);
    EXPECT_FALSE(chain->send(make_step(Epoch{1}, 2)));
    chain->close();

    start(1, ports_[1]);
    ChainLog again_log;
    chain = open(Epoch{2}, again_log);
    ASSERT_TRUE(chain->send(make_step(Epoch{2}, 1)));
    ASSERT_TRUE(again_log.wait_results(1, 10s));
    expect_loss(0, SIGKILL, again_log);
}

TEST_F(ProcessLossTest, StoppedWorkerIsNoticedAndUsableAfterwards) {
    ChainLog log;
    auto chain = open(Epoch{1}, log);
    expect_loss(0, SIGSTOP, log);
    const auto begin = std::chrono::steady_clock::now();
    chain->close();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << "closing does not wait for it";

    ASSERT_EQ(kill(children_[0]->pid(), SIGCONT), 0);
    ChainLog again_log;
    chain = open(Epoch{2}, again_log);
    ASSERT_TRUE(chain->send(make_step(Epoch{2}, 1)));
    ASSERT_TRUE(again_log.wait_results(1, 10s)) << again_log.down_reason();
    expect_loss(1, SIGSTOP, again_log);
    ASSERT_EQ(kill(children_[1]->pid(), SIGCONT), 0);
}

TEST_F(ProcessLossTest, TerminatedWorkerSaysGoodbye) {
    ChainLog log;
    const auto chain = open(Epoch{1}, log);
    expect_loss(1, SIGTERM, log);
    EXPECT_THAT(log.down_reason(), HasSubstr("shutting down"));
}

}  // namespace
}  // namespace shardline
