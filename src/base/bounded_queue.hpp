#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace shardline {

// The only hand-off between threads. Holds at most `capacity` items; any number of producers and
// consumers. Closing wakes everybody: pushes are refused from then on, pops drain what is left.
template <typename Item>
class BoundedQueue final {
public:
    explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

    // Refuses (false) when full or closed; never waits. `item` is moved from only on success.
    bool try_push(Item&& item) {
        {
            std::lock_guard lock(mutex_);
            if (closed_ || items_.size() >= capacity_) {
                return false;
            }
            items_.push_back(std::move(item));
        }
        not_empty_.notify_one();
        return true;
    }

    // Waits for room. False when the queue was closed.
    bool push(Item item) {
        {
            std::unique_lock lock(mutex_);
            not_full_.wait(lock, [&] { return closed_ || items_.size() < capacity_; });
            if (closed_) {
                return false;
            }
            items_.push_back(std::move(item));
        }
        not_empty_.notify_one();
        return true;
    }

    // Waits for an item. Empty only when the queue is closed and drained.
    std::optional<Item> pop() {
        std::unique_lock lock(mutex_);
        not_empty_.wait(lock, [&] { return closed_ || !items_.empty(); });
        return take(lock);
    }

    // As pop(), but also empty when `timeout` passes first.
    template <typename Rep, typename Period>
    std::optional<Item> pop_for(std::chrono::duration<Rep, Period> timeout) {
        std::unique_lock lock(mutex_);
        not_empty_.wait_for(lock, timeout, [&] { return closed_ || !items_.empty(); });
        return take(lock);
    }

    std::optional<Item> try_pop() {
        std::unique_lock lock(mutex_);
        return take(lock);
    }

    void close() {
        {
            std::lock_guard lock(mutex_);
            closed_ = true;
        }
        not_empty_.notify_all();
        not_full_.notify_all();
    }

    bool closed() const {
        std::lock_guard lock(mutex_);
        return closed_;
    }

    std::size_t size() const {
        std::lock_guard lock(mutex_);
        return items_.size();
    }

private:
    std::optional<Item> take(std::unique_lock<std::mutex>& lock) {
        if (items_.empty()) {
            return std::nullopt;
        }
        std::optional<Item> item(std::move(items_.front()));
        items_.pop_front();
        lock.unlock();
        not_full_.notify_one();
        return item;
    }

    const std::size_t capacity_;
    mutable std::mutex mutex_;
    std::condition_variable not_empty_;
    std::condition_variable not_full_;
    std::deque<Item> items_;  // guarded by mutex_
    bool closed_ = false;     // guarded by mutex_
};

}  // namespace shardline
