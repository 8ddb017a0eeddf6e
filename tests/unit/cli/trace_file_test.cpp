#include "cli/trace_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::microseconds;

class TraceFileTest : public testing::Test {
protected:
    ~TraceFileTest() override { fs::remove(path_); }

    std::string text() const { return read_text_file(path_, kMaxTraceBytes); }

    // Steps of `execute_us` in two stages, two in flight.
    void run_steps(const EngineOptions& options, std::uint32_t count, std::uint32_t running) {
        now_ = std::max(now_, std::chrono::steady_clock::now());
        for (std::uint32_t i = 1; i <= count; ++i) {
            now_ += microseconds(100);
            const std::vector<StageTiming> timings = {{0, 3, 80, 256}, {1, 0, 90, 1ULL << 60}};
            options.on_step({.step = StepId{i},
                             .num_rows = i,
                             .num_sequences = 1,
                             .num_prompt_tokens = i - 1,
                             .num_answer_tokens = 1,
                             .sent = now_,
                             .returned = now_ + microseconds(190),
                             .timings = timings,
                             .num_running = running,
                             .num_waiting = 0,
                             .num_blocks_used = 7});
        }
    }

    const fs::path path_ =
        fs::path(testing::TempDir()) /
        (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + ".json");
    std::chrono::steady_clock::time_point now_;
};

// Slices by track, in the order of the file.
std::map<std::string, std::vector<json>> slices_of(const json& events) {
    std::map<json, std::string> names;
    std::map<std::string, std::vector<json>> slices;
    for (const json& event : events) {
        if (event["name"] == "thread_name") {
            names[event["tid"]] = event["args"]["name"];
        } else if (event["ph"] == "X") {
            slices[names.at(event["tid"])].push_back(event);
        }
    }
    return slices;
}

TEST_F(TraceFileTest, HoldsASliceOfEveryStepAndStage) {
    EngineOptions options;
    {
        TraceFile trace(path_);
        trace.record(options, {"this process", "a \"name\"\n\\ \xFF</script>"});
        run_steps(options, 1000, 1);
    }
    const json events = json::parse(text());
    const auto slices = slices_of(events);
    ASSERT_EQ(slices.size(), 4U);
    const auto& second = slices.at("stage 1, a \"name\"\n\\ \xEF\xBF\xBD</script>");
    for (const auto& [name, track] : slices) {
        EXPECT_EQ(track.size(), name.starts_with("stage") ? 1000U : 500U) << name;
        std::int64_t end_us = 0;
        for (const json& slice : track) {
            EXPECT_GE(slice["ts"].get<std::int64_t>(), end_us) << name << slice;
            end_us = slice["ts"].get<std::int64_t>() + slice["dur"].get<std::int64_t>();
        }
    }
    const json& slice = second.at(16);
    EXPECT_EQ(slice["name"], "step 17, 17 rows");
    EXPECT_EQ(second.at(0)["name"], "step 1, 1 row");
    EXPECT_EQ(slice["dur"], 90);
    const json expected = {
        {"step", 17},         {"rows", 17},      {"sequences", 1},        {"prompt_tokens", 16},
        {"answer_tokens", 1}, {"queue_ms", 0.0}, {"bytes_in", 1ULL << 60}};
    EXPECT_EQ(slice["args"], expected);
    EXPECT_EQ(slices.at("stage 0, this process").at(3)["args"]["queue_ms"], 0.003);
}

TEST_F(TraceFileTest, OpensAtAnyTime) {
    EngineOptions options;
    TraceFile trace(path_);
    EXPECT_EQ(text(), "");
    trace.record(options, {"a", "b"});
    EXPECT_GT(json::parse(text() + "]").size(), 4U);
    run_steps(options, 3, 1);
    EXPECT_TRUE(slices_of(json::parse(text() + "]")).empty());  // in memory yet
    run_steps(options, 1, 0);                                   // idle: somebody may look now
    EXPECT_EQ(slices_of(json::parse(text() + "]")).at("stage 1, b").size(), 4U);
    run_steps(options, 500, 1);
    const std::size_t written = slices_of(json::parse(text() + "]")).at("stage 1, b").size();
    EXPECT_GT(written, 4U);
    EXPECT_LT(written, 504U);
}

TEST_F(TraceFileTest, IsEmptyButWholeWhenNothingWasRecorded) {
    { const TraceFile trace(path_); }
    EXPECT_EQ(json::parse(text()), json::array());
}

TEST_F(TraceFileTest, EndsAtItsLimitWithWholeSteps) {
    constexpr std::uint64_t kLimit = 100'000;
    EngineOptions options;
    TraceFile trace(path_, kLimit);
    trace.record(options, {"a", "b"});
    run_steps(options, 1000, 1);
    EXPECT_LE(text().size(), kLimit);
    EXPECT_GT(text().size(), kLimit - 2000);
    const auto slices = slices_of(json::parse(text()));
    EXPECT_EQ(slices.at("stage 0, a").size(), slices.at("stage 1, b").size());
}

TEST_F(TraceFileTest, SurvivesAFullDisk) {
    constexpr rlim_t kDiskBytes = 100'000;
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
    EngineOptions options;
    {
        TraceFile trace(path_);
        trace.record(options, {"a", "b"});
        const rlimit full{kDiskBytes, before.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
        run_steps(options, 1000, 1);
    }
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, signal_before);
    const auto slices = slices_of(json::parse(text() + "]"));
    EXPECT_GT(slices.at("stage 1, b").size(), 10U);
    EXPECT_LT(text().size(), kDiskBytes);
}

TEST_F(TraceFileTest, RefusesAPathItCannotWriteByName) {
    try {
        const TraceFile trace(path_ / "below" / "a file");
        FAIL() << "opened";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("below"), std::string::npos) << error.what();
    }
    EXPECT_EQ(open_trace(""), nullptr);
}

}  // namespace
}  // namespace shardline
