#pragma once

#include <chrono>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "step/stage_link.hpp"

namespace shardline {

// Sits between the engine and a chain and notes where every step's time went. As thread-safe as
// the link it wraps; rows are read when nothing is in flight.
class MeasuredLink final : public StageLink, public ChainListener {
public:
    struct Row {
        std::uint32_t rows = 0;
        double total_ms = 0.0;  // from send() to step_done()
        std::vector<StageTiming> timings;
    };

    explicit MeasuredLink(StageLink& chain) : chain_(chain) {}

    void listen(ChainListener& engine) { engine_ = &engine; }
    std::vector<Row> take_rows();

    bool send(Step step) override;
    void cancel(Epoch epoch, StepId step) override { chain_.cancel(epoch, step); }
    std::uint32_t max_in_flight() const override { return chain_.max_in_flight(); }

    void step_done(StepResult result) override;
    void chain_up(Epoch epoch) override { engine_->chain_up(epoch); }
    void chain_down(const std::string& reason) override { engine_->chain_down(reason); }

private:
    struct Sent {
        std::chrono::steady_clock::time_point at;
        std::uint32_t rows = 0;
    };

    StageLink& chain_;
    ChainListener* engine_ = nullptr;
    std::mutex mutex_;
    std::unordered_map<StepId, Sent> sent_;  // guarded by mutex_
    std::vector<Row> rows_;                  // guarded by mutex_
};

}  // namespace shardline
