#include "base/platform.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace shardline {
namespace {

using namespace std::chrono_literals;

TEST(ChildProcess, TalksThroughPipes) {
    ChildProcess child = ChildProcess::spawn({"cat"});
    EXPECT_TRUE(child.running());
    EXPECT_TRUE(child.write_stdin("one\ntwo\n"));
    EXPECT_EQ(child.read_line(5s), "one");
    EXPECT_EQ(child.read_line(5s), "two");
    EXPECT_EQ(child.read_line(1ms), std::nullopt);
}

TEST(ChildProcess, EndOfChildIsNoticed) {
    ChildProcess child = ChildProcess::spawn({"sh", "-c", "echo bye"});
    EXPECT_EQ(child.read_line(5s), "bye");
    EXPECT_EQ(child.read_line(5s), std::nullopt);
    for (int i = 0; i < 500 && child.running(); ++i) {
        std::this_thread::sleep_for(10ms);
    }
    EXPECT_FALSE(child.running());
}

TEST(ChildProcess, DeafChildIsEndedAfterGrace) {
    ChildProcess child = ChildProcess::spawn({"sh", "-c", "trap '' TERM; echo on; exec sleep 60"});
    EXPECT_EQ(child.read_line(5s), "on");
    const auto start = std::chrono::steady_clock::now();
    child.terminate(100ms);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(ChildProcess, ProgramThatIsNotThereEndsAtOnce) {
    EXPECT_EQ(run_program({"/nonexistent/program"}), 127);
    EXPECT_EQ(run_program({"sh", "-c", "exit 3"}), 3);
}

TEST(Platform, MemoryFiguresAreSane) {
    EXPECT_GT(total_memory_bytes(), 0U);
    EXPECT_LE(available_memory_bytes(), total_memory_bytes());
    EXPECT_GT(process_memory(own_pid()).anonymous_bytes, 0U);
    EXPECT_EQ(process_memory(0x7FFFFFFF).anonymous_bytes, 0U);
    EXPECT_GE(num_cores(), 1U);
    EXPECT_TRUE(std::filesystem::exists(executable_path()));
}

}  // namespace
}  // namespace shardline
