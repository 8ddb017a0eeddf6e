#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace shardline {

// Calls a function when it has not been called off in time: synchronous gRPC streams have no
// deadline for a single read. Owns one thread. Thread-safe.
class Watchdog final {
public:
    class Guard final {
    public:
        Guard(Watchdog& watchdog, std::uint64_t id) : watchdog_(watchdog), id_(id) {}
        Guard(const Guard&) = delete;
        Guard& operator=(const Guard&) = delete;
        ~Guard() { watchdog_.call_off(id_); }

    private:
        Watchdog& watchdog_;
        const std::uint64_t id_;
    };

    Watchdog();

    // `late` is called from the watchdog's thread unless the guard goes away before; once the
    // guard is gone it is not running any more either.
    [[nodiscard]] Guard arm(std::chrono::milliseconds timeout, std::function<void()> late);

private:
    struct Watch {
        std::chrono::steady_clock::time_point deadline;
        std::function<void()> late;
    };

    void call_off(std::uint64_t id);
    void run(const std::stop_token& stopping);

    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::map<std::uint64_t, Watch> watches_;  // guarded by mutex_; few, so searched whole
    std::uint64_t next_id_ = 0;               // guarded by mutex_
    std::jthread thread_;                     // last: starts when all else is there
};

}  // namespace shardline
