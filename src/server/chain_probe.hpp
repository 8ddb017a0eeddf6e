#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "engine/engine.hpp"

namespace shardline {

struct Readiness {
    bool ready = false;
    std::string reason;  // when not ready
};

// Tells whether a step gets through the whole chain, by waiting for one. Nothing is sent while
// nobody asks. Thread-safe; askers take turns and share what the one before them found out, so
// that many of them cost one step.
class ChainProbe final {
public:
    // `patience`: how long a step may take; `freshness`: how long a good answer stays good.
    ChainProbe(Engine& engine, std::chrono::milliseconds patience,
               std::chrono::milliseconds freshness)
        : engine_(engine), patience_(patience), freshness_(freshness) {}

    Readiness check();

private:
    using Clock = std::chrono::steady_clock;

    Readiness look();

    Engine& engine_;
    const std::chrono::milliseconds patience_;
    const std::chrono::milliseconds freshness_;
    std::mutex mutex_;
    Readiness verdict_;               // guarded by mutex_; the latest
    Clock::time_point verdict_time_;  // guarded by mutex_
};

}  // namespace shardline
