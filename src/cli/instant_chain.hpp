#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "base/bounded_queue.hpp"
#include "step/stage_link.hpp"

namespace shardline {

// A chain that answers at once and always the same: what is left is the engine's own work. A
// simulation, for benches; whoever prints figures of it says so. Answers on a thread of its own.
class InstantChain final : public StageLink {
public:
    InstantChain(std::uint32_t vocab_size, std::uint32_t max_in_flight);
    ~InstantChain() override;

    // From here on the listener hears of the chain. It must outlive this.
    void serve(ChainListener& listener);

    bool send(Step step) override { return steps_.try_push(std::move(step)); }
    void cancel(Epoch /*epoch*/, StepId /*step*/) override {}  // too quick to cancel anything
    std::uint32_t max_in_flight() const override { return max_in_flight_; }

private:
    void answer(const StepPlan& plan);

    const std::uint32_t max_in_flight_;
    const std::uint32_t vocab_size_;
    std::string row_;  // of logits, as bytes: one token is far ahead
    BoundedQueue<Step> steps_;
    ChainListener* listener_ = nullptr;
    std::thread thread_;
};

}  // namespace shardline
