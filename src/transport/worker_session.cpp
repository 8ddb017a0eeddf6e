#include "transport/worker_session.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "transport/protocol.hpp"

namespace shardline {
namespace {

// A coordinator has at most kMaxStepsInFlight unanswered, and a few troubles may come on top.
constexpr std::size_t kMaxEvents = 2 * kMaxStepsInFlight;

}  // namespace

Occupancy::~Occupancy() {
    if (session_) {
        session_->leave();
    }
}

WorkerSession::WorkerSession(SessionOwner owner)
    : owner_(std::move(owner)), events_(kMaxEvents), results_(kMaxEvents) {}

void WorkerSession::report(StepResult ended) {
    if (!events_.try_push(Event(std::move(ended))) && !ended_) {
        room_logger("transport")->error("{} does not take its events, ending", owner_.node);
        end();
    }
}

void WorkerSession::report_trouble(Trouble trouble) {
    room_logger("transport")
        ->warn("epoch {} of {}: {}", to_number(owner_.epoch), owner_.node, trouble.reason);
    if (!events_.try_push(Event(std::move(trouble)))) {
        end();
    }
}

std::optional<WorkerSession::Event> WorkerSession::next_event(std::chrono::milliseconds timeout) {
    return events_.pop_for(timeout);
}

void WorkerSession::deliver(StepResult done) {
    if (!results_.try_push(std::move(done)) && !ended_) {
        room_logger("transport")->error("{} does not take its results, ending", owner_.node);
        end();
    }
}

std::optional<StepResult> WorkerSession::next_result(std::chrono::milliseconds timeout) {
    return results_.pop_for(timeout);
}

bool WorkerSession::begin_results() {
    std::lock_guard lock(mutex_);
    if (results_open_ || ended_) {
        return false;
    }
    results_open_ = true;
    return true;
}

void WorkerSession::end_results() {
    std::lock_guard lock(mutex_);
    results_open_ = false;
}

Occupancy WorkerSession::occupy(std::string activity, std::function<void()> stop) {
    std::lock_guard lock(mutex_);
    if (ended_) {
        throw Error(ErrorCode::kUnavailable, "the coordinator's watch stream has ended");
    }
    if (occupied_) {
        throw Error(ErrorCode::kUnavailable, fmt::format("already {}", activity_));
    }
    occupied_ = true;
    activity_ = std::move(activity);
    stop_ = std::move(stop);
    return Occupancy(shared_from_this());
}

void WorkerSession::leave() {
    {
        std::lock_guard lock(mutex_);
        occupied_ = false;
        activity_.clear();
        stop_ = nullptr;
    }
    freed_.notify_all();
}

std::string WorkerSession::activity() const {
    std::lock_guard lock(mutex_);
    return activity_;
}

bool WorkerSession::occupied() const {
    std::lock_guard lock(mutex_);
    return occupied_;
}

void WorkerSession::end() {
    std::lock_guard lock(mutex_);
    if (ended_.exchange(true)) {
        return;
    }
    events_.close();
    results_.close();
    freed_.notify_all();
    // Under the lock, so that what it stops is still there.
    if (stop_) {
        std::exchange(stop_, nullptr)();
    }
}

bool WorkerSession::wait_until_free(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return freed_.wait_for(lock, timeout, [&] { return ended_ && !occupied_; });
}

}  // namespace shardline
