#include "base/platform.hpp"

#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

namespace {

// The value of "Key:  N kB" in a /proc file, in bytes; 0 when it is not there.
std::uint64_t proc_kilobytes(const std::string& path, const std::string& key) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
        if (line.rfind(key + ":", 0) == 0) {
            std::istringstream rest(line.substr(key.size() + 1));
            std::uint64_t kilobytes = 0;
            rest >> kilobytes;
            return kilobytes * 1024;
        }
    }
    return 0;
}

// A control group may allow less than the machine has.
std::uint64_t control_group_bytes(const char* path) {
    std::ifstream file(path);
    std::uint64_t bytes = 0;
    return file >> bytes ? bytes : 0;
}

std::array<int, 2> make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw Error(ErrorCode::kResourceExhausted,
                    fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    }
    return ends;
}

void exec_program(const std::vector<std::string>& arguments) {
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (const std::string& argument : arguments) {
        argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
}

}  // namespace

std::uint64_t total_memory_bytes() {
    const std::uint64_t machine = proc_kilobytes("/proc/meminfo", "MemTotal");
    const std::uint64_t group = control_group_bytes("/sys/fs/cgroup/memory.max");
    return group == 0 ? machine : std::min(machine, group);
}

std::uint64_t available_memory_bytes() {
    const std::uint64_t machine = proc_kilobytes("/proc/meminfo", "MemAvailable");
    const std::uint64_t limit = control_group_bytes("/sys/fs/cgroup/memory.max");
    if (limit == 0) {
        return machine;
    }
    const std::uint64_t used = control_group_bytes("/sys/fs/cgroup/memory.current");
    return std::min(machine, limit > used ? limit - used : 0);
}

std::uint32_t num_cores() {
    return std::max(1U, std::thread::hardware_concurrency());
}

ProcessMemory process_memory(int pid) {
    const std::string path = fmt::format("/proc/{}/status", pid);
    return {.anonymous_bytes = proc_kilobytes(path, "RssAnon"),
            .file_mapped_bytes = proc_kilobytes(path, "RssFile"),
            .peak_bytes = proc_kilobytes(path, "VmHWM")};
}

void share_heaps_among_threads() {
#ifdef __GLIBC__
    constexpr int kHeaps = 2;
    mallopt(M_ARENA_MAX, kHeaps);
#endif
}

int own_pid() {
    return getpid();
}

std::string host_name() {
    std::array<char, 256> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown-host";
}

std::string shared_cores_id() {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    cpu_set_t cores;
    if (boot.empty() || sched_getaffinity(0, sizeof cores, &cores) != 0) {
        return {};
    }
    std::string list;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        list += CPU_ISSET(core, &cores) ? fmt::format(" {}", core) : "";
    }
    return boot + list;
}

std::filesystem::path executable_path() {
    return std::filesystem::read_symlink("/proc/self/exe");
}

std::filesystem::path user_cache_directory() {
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
        return std::filesystem::path(cache) / "shardline";
    }
    const char* home = std::getenv("HOME");
    return std::filesystem::path(home != nullptr ? home : "/tmp") / ".cache" / "shardline";
}

bool stderr_is_terminal() {
    return isatty(STDERR_FILENO) == 1;
}

struct ChildProcess::State {
    pid_t pid = -1;
    int stdin_fd = -1;
    int stdout_fd = -1;
    std::string pending;  // read from stdout, not yet handed out
};

ChildProcess ChildProcess::spawn(const std::vector<std::string>& arguments) {
    const auto input = make_pipe();
    const auto output = make_pipe();
    const pid_t pid = fork();
    if (pid < 0) {
        throw Error(ErrorCode::kResourceExhausted,
                    fmt::format("cannot start {}: {}", arguments.front(), std::strerror(errno)));
    }
    if (pid == 0) {
        dup2(input[0], STDIN_FILENO);
        dup2(output[1], STDOUT_FILENO);
        // A Ctrl-C at the terminal reaches the parent only, which then ends its children in order.
        setpgid(0, 0);
        exec_program(arguments);
    }
    close(input[0]);
    close(output[1]);
    auto state = std::make_unique<State>();
    state->pid = pid;
    state->stdin_fd = input[1];
    state->stdout_fd = output[0];
    return ChildProcess(std::move(state));
}

ChildProcess::ChildProcess(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChildProcess::ChildProcess(ChildProcess&&) noexcept = default;

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
    if (this != &other) {
        terminate(std::chrono::seconds(2));
        state_ = std::move(other.state_);
    }
    return *this;
}

ChildProcess::~ChildProcess() {
    terminate(std::chrono::seconds(2));
}

int ChildProcess::pid() const {
    return state_->pid;
}

bool ChildProcess::running() const {
    if (state_->pid < 0) {
        return false;
    }
    siginfo_t info{};
    // WNOWAIT leaves the child to be reaped by terminate(), so that its id stays ours until then.
    return waitid(P_PID, static_cast<id_t>(state_->pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
}

bool ChildProcess::write_stdin(const std::string& text) {
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t count = write(state_->stdin_fd, text.data() + done, text.size() - done);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return false;
        }
        done += static_cast<std::size_t>(count);
    }
    return true;
}

std::optional<std::string> ChildProcess::read_line(std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
        if (const auto end = state_->pending.find('\n'); end != std::string::npos) {
            std::string line = state_->pending.substr(0, end);
            state_->pending.erase(0, end + 1);
            return line;
        }
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        pollfd waiting{.fd = state_->stdout_fd, .events = POLLIN, .revents = 0};
        if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) <= 0) {
            return std::nullopt;
        }
        std::array<char, 4096> chunk{};
        const ssize_t count = read(state_->stdout_fd, chunk.data(), chunk.size());
        if (count <= 0) {
            return std::nullopt;
        }
        state_->pending.append(chunk.data(), static_cast<std::size_t>(count));
    }
}

void ChildProcess::terminate(std::chrono::milliseconds grace) {
    if (state_ == nullptr || state_->pid < 0) {
        return;
    }
    kill(state_->pid, SIGTERM);
    kill(state_->pid, SIGCONT);  // a stopped one would not hear it
    const auto deadline = std::chrono::steady_clock::now() + grace;
    while (waitpid(state_->pid, nullptr, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() >= deadline) {
            kill(state_->pid, SIGKILL);
            waitpid(state_->pid, nullptr, 0);
            break;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    close(state_->stdin_fd);
    close(state_->stdout_fd);
    state_->pid = -1;
}

int run_program(const std::vector<std::string>& arguments) {
    const pid_t pid = fork();
    if (pid == 0) {
        exec_program(arguments);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

namespace {

sigset_t stop_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    return signals;
}

}  // namespace

StopSignal::StopSignal() {
    const sigset_t signals = stop_signals();
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
}

StopSignal::~StopSignal() {
    const sigset_t signals = stop_signals();
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void StopSignal::wait() const {
    const sigset_t signals = stop_signals();
    int which = 0;
    sigwait(&signals, &which);
}

bool StopSignal::wait_for(std::chrono::milliseconds timeout) const {
    const sigset_t signals = stop_signals();
    const timespec limit{.tv_sec = timeout.count() / 1000,
                         .tv_nsec = (timeout.count() % 1000) * 1'000'000};
    return sigtimedwait(&signals, nullptr, &limit) > 0;
}

void request_stop() {
    kill(getpid(), SIGTERM);
}

void watch_stdin_end(std::function<void()> gone) {
    std::thread([gone = std::move(gone)] {
        std::array<char, 256> ignored{};
        while (read(STDIN_FILENO, ignored.data(), ignored.size()) > 0) {
        }
        gone();
    }).detach();
}

std::string read_stdin_until(const std::string& end_line, std::size_t max_bytes) {
    // Byte by byte from the descriptor: a buffered stream would swallow what comes after.
    std::string text;
    std::string line;
    char character = 0;
    while (text.size() + line.size() < max_bytes && read(STDIN_FILENO, &character, 1) == 1) {
        if (character != '\n') {
            line.push_back(character);
            continue;
        }
        if (line == end_line) {
            return text;
        }
        text += line + "\n";
        line.clear();
    }
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("stdin ended, or gave over {} bytes, before the line '{}'", max_bytes,
                            end_line));
}

}  // namespace shardline
