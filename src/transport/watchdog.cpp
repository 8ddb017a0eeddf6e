#include "transport/watchdog.hpp"

#include <algorithm>
#include <utility>

namespace shardline {

Watchdog::Watchdog() : thread_([this](const std::stop_token& stopping) { run(stopping); }) {}

Watchdog::Guard Watchdog::arm(std::chrono::milliseconds timeout, std::function<void()> late) {
    std::uint64_t id = 0;
    {
        std::lock_guard lock(mutex_);
        id = next_id_++;
        watches_[id] = {std::chrono::steady_clock::now() + timeout, std::move(late)};
    }
    changed_.notify_one();
    return {*this, id};
}

void Watchdog::call_off(std::uint64_t id) {
    std::lock_guard lock(mutex_);
    watches_.erase(id);
}

void Watchdog::run(const std::stop_token& stopping) {
    std::unique_lock lock(mutex_);
    const auto by_deadline = [](const auto& one, const auto& other) {
        return one.second.deadline < other.second.deadline;
    };
    while (!stopping.stop_requested()) {
        const auto first = std::min_element(watches_.begin(), watches_.end(), by_deadline);
        if (first == watches_.end()) {
            changed_.wait(lock, stopping, [this] { return !watches_.empty(); });
            continue;
        }
        if (first->second.deadline <= std::chrono::steady_clock::now()) {
            // Under the lock: whoever calls off waits until it has been called.
            first->second.late();
            watches_.erase(first);
            continue;
        }
        const std::size_t seen = watches_.size();
        const auto deadline = first->second.deadline;  // the watch may be called off meanwhile
        changed_.wait_until(lock, stopping, deadline, [&] { return watches_.size() != seen; });
    }
}

}  // namespace shardline
