#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// Everything specific to an operating system that is not a file: a port is platform.cpp and
// file.cpp written once more.

namespace shardline {

struct ProcessMemory {
    std::uint64_t anonymous_bytes = 0;    // resident, not backed by a file
    std::uint64_t file_mapped_bytes = 0;  // resident, can be dropped and read again
    std::uint64_t peak_bytes = 0;         // largest resident size so far
};

std::uint64_t total_memory_bytes();
std::uint64_t available_memory_bytes();
std::uint32_t num_cores();
ProcessMemory process_memory(int pid);  // zeros when the process is gone
int own_pid();

// Keeps the allocator from giving every thread a heap of its own: a server's many short threads
// would each leave one behind, and memory would creep up for hours. Before any thread is made.
void share_heaps_among_threads();
std::string host_name();

// The same in all processes that may run on the same cores of this machine, containers included,
// until it boots again; tells nothing about it. Empty where the system has no such thing.
std::string shared_cores_id();
std::filesystem::path executable_path();
std::filesystem::path user_cache_directory();  // of this program; created on demand by its users
bool stderr_is_terminal();

// A child process with pipes on stdin and stdout; stderr is shared. The child is ended (SIGTERM,
// then SIGKILL after a grace period) and reaped when the object goes away: no orphans.
// Used from one thread, except running().
class ChildProcess final {
public:
    // Throws Error(kNotFound) when the program cannot be started.
    static ChildProcess spawn(const std::vector<std::string>& arguments);

    ChildProcess(ChildProcess&&) noexcept;
    ChildProcess& operator=(ChildProcess&&) noexcept;
    ~ChildProcess();

    int pid() const;
    bool running() const;

    // False when the child no longer reads. The pipe stays open: closing it is how a worker
    // learns that its parent is gone.
    bool write_stdin(const std::string& text);

    // One line without its end; empty when `timeout` passes or the child closes stdout first.
    std::optional<std::string> read_line(std::chrono::milliseconds timeout);

    void terminate(std::chrono::milliseconds grace);

private:
    struct State;
    explicit ChildProcess(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

// Runs a program to its end with inherited input and output; its exit code, 127 when it could not
// be started.
int run_program(const std::vector<std::string>& arguments);

// Waits for SIGINT or SIGTERM. Create before any thread, so that all inherit the blocked signals;
// one per process. SIGPIPE is ignored from then on.
class StopSignal final {
public:
    StopSignal();
    StopSignal(const StopSignal&) = delete;
    StopSignal& operator=(const StopSignal&) = delete;
    ~StopSignal();

    void wait() const;
    bool wait_for(std::chrono::milliseconds timeout) const;  // true: a signal came
};

// As if SIGTERM had come; from any thread.
void request_stop();

// Calls `gone` once, from a thread of its own, when whoever holds the other end of stdin goes.
void watch_stdin_end(std::function<void()> gone);

// Text from stdin up to and without a line that equals `end_line`; throws Error when stdin ends
// first or more than `max_bytes` come.
std::string read_stdin_until(const std::string& end_line, std::size_t max_bytes);

}  // namespace shardline
