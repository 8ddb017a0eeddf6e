#include "cli/trace_file.hpp"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.hpp"
#include "base/log.hpp"

namespace shardline {

namespace {

// Viewers want a process and a thread id for every track. No two alike, and no thread with the id
// of its process, which would be taken for its main thread.
constexpr std::uint32_t kCoordinator = 1;
constexpr std::uint32_t kStages = 2;
constexpr std::uint32_t kFirstStageTrack = 1000;
constexpr std::uint32_t kFirstSlotTrack = 2000;

constexpr std::size_t kFlushBytes = 64 * 1024;
constexpr std::chrono::seconds kFlushAfter{1};
constexpr std::string_view kArrayEnd = "\n]\n";

constexpr const char* kPlacement =
    "Durations are as the stages measured them. Clocks of machines are not synchronised: where a "
    "slice begins is derived from the times at which the coordinator sent the step and had it "
    "back, with hops taken for equally long.";

// Name and arguments of every slice of the step; open for more arguments.
std::string slice_text(const StepRecord& step) {
    const auto id = to_number(step.step);
    return fmt::format(
        R"("name":"step {0}, {1} row{2}","args":{{"step":{0},"rows":{1},"sequences":{3},)"
        R"("prompt_tokens":{4},"answer_tokens":{5})",
        id, step.num_rows, step.num_rows == 1 ? "" : "s", step.num_sequences,
        step.num_prompt_tokens, step.num_answer_tokens);
}

std::string slice_place(std::uint32_t process, std::uint32_t track, std::int64_t begin_us,
                        std::int64_t duration_us) {
    return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},)", process, track,
                       begin_us, duration_us);
}

}  // namespace

TraceFile::TraceFile(const std::filesystem::path& path, std::uint64_t max_bytes)
    : max_bytes_(max_bytes), file_(File::open_or_create(path)) {
    file_.set_size(0);
}

TraceFile::~TraceFile() {
    close();
}

void TraceFile::record(EngineOptions& options, const std::vector<std::string>& stages) {
    append_name("process_name", kCoordinator, 0, "coordinator");
    append_name("process_name", kStages, 0, "stages, places derived");
    for (std::uint32_t stage = 0; stage < stages.size(); ++stage) {
        append_name("thread_name", kStages, kFirstStageTrack + stage,
                    fmt::format("stage {}, {}", stage, stages[stage]));
    }
    append(nlohmann::json{{"ph", "i"},
                          {"s", "p"},
                          {"pid", kStages},
                          {"tid", kFirstStageTrack},
                          {"ts", 0},
                          {"name", "how to read this"},
                          {"args", {{"placement", kPlacement}}}}
               .dump());
    flush();
    timeline_.emplace(static_cast<std::uint32_t>(stages.size()), Clock::now());
    options.on_step = [this](const StepRecord& step) { add(step); };
}

// Nothing that befalls a trace may reach the engine, lack of memory included.
void TraceFile::add(const StepRecord& step) {
    if (!open_) {
        return;
    }
    try {
        const std::size_t whole_steps = buffer_.size();
        append_step(step);
        if (written_bytes_ + buffer_.size() + kArrayEnd.size() > max_bytes_) {
            buffer_.resize(whole_steps);
            close();
            room_logger("cli")->warn("{} has reached {} MiB, the trace ends here",
                                     file_.path().string(), max_bytes_ >> 20);
            return;
        }
        const bool idle = step.num_running == 0 && step.num_waiting == 0;
        if (idle || buffer_.size() >= kFlushBytes || step.returned - last_flush_ >= kFlushAfter) {
            flush();
            last_flush_ = step.returned;
        }
    } catch (const std::exception& error) {
        give_up(error.what());
    }
}

void TraceFile::append_step(const StepRecord& step) {
    const PlacedStep placed = timeline_->place(step);
    const std::string text = slice_text(step);
    if (placed.slot == num_slots_) {
        append_name("thread_name", kCoordinator, kFirstSlotTrack + num_slots_,
                    fmt::format("in flight {}", num_slots_));
        ++num_slots_;
    }
    append(slice_place(kCoordinator, kFirstSlotTrack + placed.slot, placed.sent_us,
                       placed.returned_us - placed.sent_us) +
           text + "}}");
    for (const StageSlice& slice : placed.stages) {
        append(slice_place(kStages, kFirstStageTrack + slice.timing.stage, slice.begin_us,
                           slice.timing.execute_us) +
               text +
               fmt::format(R"(,"queue_ms":{:.3f},"bytes_in":{}}}}})",
                           slice.timing.queue_us / 1000.0, slice.timing.bytes_in));
    }
    append(fmt::format(
        R"({{"ph":"C","pid":{},"ts":{},"name":"requests","args":{{"running":{},"waiting":{}}}}})",
        kCoordinator, placed.returned_us, step.num_running, step.num_waiting));
    append(fmt::format(R"({{"ph":"C","pid":{},"ts":{},"name":"KV blocks","args":{{"used":{}}}}})",
                       kCoordinator, placed.returned_us, step.num_blocks_used));
}

void TraceFile::append_name(const char* kind, std::uint32_t process, std::uint32_t track,
                            const std::string& name) {
    const nlohmann::json event = {
        {"ph", "M"}, {"pid", process}, {"tid", track}, {"name", kind}, {"args", {{"name", name}}}};
    // Addresses and device names come from other machines, in whatever encoding.
    append(event.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

void TraceFile::append(std::string_view event) {
    buffer_ += first_event_ ? "[\n" : ",\n";
    buffer_ += event;
    first_event_ = false;
}

void TraceFile::flush() {
    try {
        file_.write_at(written_bytes_, std::as_bytes(std::span(buffer_)));
        written_bytes_ += buffer_.size();
        buffer_.clear();
    } catch (const Error& error) {
        give_up(error.what());
    }
}

void TraceFile::close() {
    if (open_) {
        buffer_ += first_event_ ? "[]\n" : kArrayEnd;
        flush();
        open_ = false;
    }
}

void TraceFile::give_up(const std::string& reason) {
    open_ = false;
    buffer_.clear();
    room_logger("cli")->warn("{}; the trace ends here", reason);
    try {
        file_.set_size(written_bytes_);  // half an event would spoil the rest
    } catch (const Error& error) {
        room_logger("cli")->warn("{}", error.what());
    }
}

std::unique_ptr<TraceFile> open_trace(const std::string& path) {
    return path.empty() ? nullptr : std::make_unique<TraceFile>(path);
}

}  // namespace shardline
