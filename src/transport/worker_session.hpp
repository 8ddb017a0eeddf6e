#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "base/bounded_queue.hpp"
#include "base/ids.hpp"
#include "step/step.hpp"

namespace shardline {

// Who holds a worker, and for which epoch.
struct SessionOwner {
    std::string node;  // for people
    std::string id;    // the coordinator's random identity
    Epoch epoch{};
    std::string peer;  // the address it came from, for people
};

// The step stream's or the load's hold on the session's stage; see WorkerSession::occupy.
class WorkerSession;
class Occupancy final {
public:
    explicit Occupancy(std::shared_ptr<WorkerSession> session) : session_(std::move(session)) {}
    Occupancy(Occupancy&&) noexcept = default;
    Occupancy& operator=(Occupancy&&) = delete;
    ~Occupancy();

private:
    std::shared_ptr<WorkerSession> session_;
};

// A coordinator's hold on this worker, from the begin of its Watch stream to its end. Hands what
// the stage produces to the streams that carry it, and ends the other streams when it ends.
// Thread-safe. Shared by the streams of one coordinator, each of which may outlive the others.
class WorkerSession final : public std::enable_shared_from_this<WorkerSession> {
public:
    // Why the worker can no longer do its part.
    struct Trouble {
        std::string reason;
        bool downstream = false;  // it is the next worker that is lost
    };

    // A step that ended here (not done), or the end of all.
    using Event = std::variant<StepResult, Trouble>;

    explicit WorkerSession(SessionOwner owner);

    const SessionOwner& owner() const { return owner_; }

    // For the Watch stream. An overflow ends the session: nothing may be lost quietly.
    void report(StepResult ended);
    void report_trouble(Trouble trouble);
    std::optional<Event> next_event(std::chrono::milliseconds timeout);

    // For the Results stream, which only one at a time may serve.
    void deliver(StepResult done);
    std::optional<StepResult> next_result(std::chrono::milliseconds timeout);
    bool begin_results();
    void end_results();

    // Loading the stage and running it exclude each other and themselves; throws
    // Error(kUnavailable) when occupied or ended. `stop` is called from end(), at most once.
    Occupancy occupy(std::string activity, std::function<void()> stop);

    std::string activity() const;  // "" when not occupied
    bool occupied() const;

    // Idempotent. Streams end soon after; the stage is free when occupied() turns false.
    void end();
    bool ended() const { return ended_; }
    bool wait_until_free(std::chrono::milliseconds timeout);

    std::atomic<std::uint64_t> steps_received = 0;
    std::atomic<std::uint64_t> steps_finished = 0;  // handed on, or ended here

private:
    friend class Occupancy;
    void leave();

    const SessionOwner owner_;
    BoundedQueue<Event> events_;
    BoundedQueue<StepResult> results_;
    std::atomic<bool> ended_ = false;
    mutable std::mutex mutex_;
    std::condition_variable freed_;
    std::string activity_;        // guarded by mutex_, as all below
    std::function<void()> stop_;  // set while occupied
    bool occupied_ = false;
    bool results_open_ = false;
};

}  // namespace shardline
