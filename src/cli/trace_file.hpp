#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "engine/engine.hpp"
#include "engine/step_timeline.hpp"

namespace shardline {

inline constexpr std::uint64_t kMaxTraceBytes = std::uint64_t{1} << 30;

// The timeline behind --trace: Chrome trace events, an array of JSON objects, one a line, which
// ui.perfetto.dev opens.
//
//     coordinator   in flight 0   | step 7, 17 rows      || step 9, 4 rows       |
//                   in flight 1        | step 8, 4 rows       || step 10, ...
//                   requests running, waiting; KV blocks used
//     stages        stage 0, ...  | 7 |    | 8 |          | 9 |
//                   stage 1, ...        |   7    | 8 |          | 9 |
//
// A step that failed or was cancelled is not in it. What is written ends at the end of an event at
// any time, and the array need not be closed: the trace of a process that was killed opens too.
// A full disk or file ends the trace with one warning, never the run.
// Made by the thread that composes; written on the threads of engines, one engine at a time.
class TraceFile final {
public:
    // Creates or empties the file. Throws Error naming the path and the reason.
    explicit TraceFile(const std::filesystem::path& path, std::uint64_t max_bytes = kMaxTraceBytes);
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;
    ~TraceFile();

    // Engines made with `options` write here, and must be stopped before this goes. Called once;
    // `stages` says what each place in the chain is, and may hold any text.
    void record(EngineOptions& options, const std::vector<std::string>& stages);

private:
    using Clock = std::chrono::steady_clock;

    void add(const StepRecord& step);
    void append_step(const StepRecord& step);
    void append_name(const char* kind, std::uint32_t process, std::uint32_t track,
                     const std::string& name);
    void append(std::string_view event);
    void flush();
    void close();
    void give_up(const std::string& reason);

    const std::uint64_t max_bytes_;
    File file_;
    std::string buffer_;  // whole events, not written yet
    bool first_event_ = true;
    std::uint64_t written_bytes_ = 0;
    Clock::time_point last_flush_ = Clock::now();
    bool open_ = true;  // false: given up or closed
    std::optional<StepTimeline> timeline_;
    std::uint32_t num_slots_ = 0;  // that have a name
};

// Null without a path.
std::unique_ptr<TraceFile> open_trace(const std::string& path);

}  // namespace shardline
