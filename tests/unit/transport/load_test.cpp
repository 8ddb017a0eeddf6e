// What can go wrong while a chain loads, and what the coordinator is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.hpp"
#include "unit/transport/chain_harness.hpp"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

class LoadTest : public ::testing::Test {
protected:
    // A second worker beside the fleet's, with a loader of the test's own.
    void start(StageLoader loader) {
        WorkerOptions options = fleet_.worker_options(0);
        options.name = "attic";
        options.listen = "127.0.0.1:0";
        worker_ = std::make_unique<WorkerServer>(options, std::move(loader));
    }

    std::vector<ChainHop> hops() const {
        return {{fleet_.address(0), fleet_.spec(0)},
                {"127.0.0.1:" + std::to_string(worker_->port()), fleet_.spec(1)}};
    }

    std::string load_error(Epoch epoch, ErrorCode code) {
        ChainLog log;
        GrpcChain chain(fleet_.credentials(), hops(), epoch, fleet_.chain_options(),
                        log.callbacks());
        try {
            chain.load({}, {});
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), code);
            EXPECT_EQ(log.num_downs(), 0U) << "an error is told once";
            return error.what();
        }
        return "loaded";
    }

    TestFleet fleet_{1};
    std::unique_ptr<WorkerServer> worker_;
};

TEST_F(LoadTest, LoadersErrorNamesTheWorkerAndLeavesItUsable) {
    std::atomic<bool> fail = true;
    start([&](const StageSpec&, const std::filesystem::path&, const LoadProgress&) {
        if (fail) {
            throw Error(ErrorCode::kResourceExhausted, "the device has 12 bytes left");
        }
        return make_test_executor(1);
    });
    EXPECT_THAT(load_error(Epoch{1}, ErrorCode::kResourceExhausted),
                AllOf(HasSubstr("attic"), HasSubstr("12 bytes left")));
    fail = false;
    EXPECT_EQ(load_error(Epoch{2}, ErrorCode::kInternal), "loaded");
}

TEST_F(LoadTest, AnyExceptionOfALoaderIsAnError) {
    start([](const StageSpec&, const std::filesystem::path&,
             const LoadProgress&) -> std::unique_ptr<StageExecutor> {
        throw std::runtime_error("a library's own");
    });
    EXPECT_THAT(load_error(Epoch{1}, ErrorCode::kInternal), HasSubstr("a library's own"));
}

TEST_F(LoadTest, StagesThatWouldComputeOtherBitsAreRefused) {
    start([](const StageSpec&, const std::filesystem::path&, const LoadProgress&) {
        EffectiveSettings effective;
        effective.inference_precision = "bf16";
        return make_test_executor(1, {}, effective);
    });
    EXPECT_THAT(load_error(Epoch{1}, ErrorCode::kUnsupported),
                AllOf(HasSubstr("node0"), HasSubstr("attic"), HasSubstr("bf16")));
}

TEST_F(LoadTest, ProgressComesFromEveryWorker) {
    start([](const StageSpec&, const std::filesystem::path&, const LoadProgress& progress) {
        progress("reading", 0.0);
        progress("compiling", 1.0);
        return make_test_executor(1);
    });
    ChainLog log;
    GrpcChain chain(fleet_.credentials(), hops(), Epoch{1}, fleet_.chain_options(),
                    log.callbacks());
    std::vector<std::pair<std::size_t, std::string>> seen;
    chain.load({}, [&](std::size_t worker, const std::string& phase, double fraction) {
        EXPECT_GE(fraction, 0.0);
        EXPECT_LE(fraction, 1.0);
        seen.emplace_back(worker, phase);
    });
    EXPECT_THAT(seen, ::testing::Contains(std::pair<std::size_t, std::string>(0, "compiling")));
    EXPECT_THAT(seen, ::testing::Contains(std::pair<std::size_t, std::string>(1, "reading")));
    EXPECT_THAT(seen, ::testing::Contains(std::pair<std::size_t, std::string>(1, "compiling")));
}

// A loader that goes on until it is told that nobody waits for it any more.
class EndlessLoad final {
public:
    StageLoader loader() {
        return [this](const StageSpec&, const std::filesystem::path&,
                      const LoadProgress& progress) -> std::unique_ptr<StageExecutor> {
            begun_ = true;
            try {
                while (true) {
                    std::this_thread::sleep_for(20ms);
                    progress("compiling", 0.5);
                }
            } catch (const Error&) {
                given_up_ = true;
                throw;
            }
        };
    }
    bool wait_begun() const { return wait(begun_); }
    bool wait_given_up() const { return wait(given_up_); }

private:
    static bool wait(const std::atomic<bool>& flag) {
        for (int i = 0; i < 500 && !flag; ++i) {
            std::this_thread::sleep_for(20ms);
        }
        return flag;
    }

    std::atomic<bool> begun_ = false;
    std::atomic<bool> given_up_ = false;
};

TEST_F(LoadTest, CloseEndsALoadOnBothSides) {
    EndlessLoad endless;
    start(endless.loader());
    ChainLog log;
    GrpcChain chain(fleet_.credentials(), hops(), Epoch{1}, fleet_.chain_options(),
                    log.callbacks());
    std::jthread closer([&] {
        endless.wait_begun();
        chain.close();
    });
    try {
        chain.load({}, {});
        FAIL() << "the chain was closed";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
        EXPECT_THAT(error.what(), HasSubstr("closed"));
    }
    EXPECT_TRUE(endless.wait_given_up());
}

TEST_F(LoadTest, WorkerThatGoesWhileAnotherLoadsEndsTheLoad) {
    EndlessLoad endless;
    start(endless.loader());
    std::jthread stopper([&] {
        endless.wait_begun();
        fleet_.stop_worker(0);
    });
    EXPECT_THAT(load_error(Epoch{1}, ErrorCode::kUnavailable),
                AllOf(HasSubstr("node0"), HasSubstr("shutting down")));
    EXPECT_TRUE(endless.wait_given_up());
}

}  // namespace
}  // namespace shardline
