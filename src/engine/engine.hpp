#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/request.hpp"
#include "step/stage_link.hpp"

namespace shardline {

struct EngineOptions {
    std::uint32_t num_blocks = 0;   // of every stage's pool, spare block included
    std::uint32_t max_context = 0;  // tokens per sequence, prompt and answer
    std::uint32_t vocab_size = 0;
    std::uint32_t max_step_tokens = 512;  // token budget of a step
    std::uint32_t max_sequences = 64;     // running at a time
    std::uint32_t max_waiting = 128;      // queued beyond those; more is refused

    void validate() const;
};

enum class SubmitStatus { kAccepted, kQueueFull, kChainDown, kTooLong };

struct EngineStats {
    std::uint32_t running = 0;
    std::uint32_t waiting = 0;
    std::uint32_t blocks_used = 0;
    std::uint32_t blocks_total = 0;
    std::uint64_t steps = 0;
    std::uint64_t tokens = 0;
    double schedule_ms_per_step = 0.0;  // the engine thread's own work per step
};

// One thread owns all of it: admits requests, makes steps, absorbs results, samples.
// submit(), stats() and the ChainListener calls may come from any thread.
class Engine final : public ChainListener {
public:
    explicit Engine(const EngineOptions& options);
    ~Engine() override;

    // The link must outlive stop(). Called once, before the first submit.
    void start(StageLink& link);
    void stop();

    SubmitStatus submit(Request request);
    void cancel_soon();  // wakes the thread after a handle's `cancelled` was set

    // Ready: the chain is up. Health asks for more (a probe step), see server.
    bool chain_is_up() const;
    std::string chain_down_reason() const;
    EngineStats stats() const;

    void step_done(StepResult result) override;
    void chain_up(Epoch epoch) override;
    void chain_down(const std::string& reason) override;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace shardline
