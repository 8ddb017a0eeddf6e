#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/histogram.hpp"
#include "engine/request.hpp"
#include "step/stage_link.hpp"

namespace shardline {

struct StepRecord;

struct EngineOptions {
    std::uint32_t num_blocks = 0;         // of every stage's pool, spare block included
    std::uint32_t max_context = 0;        // tokens per sequence, prompt and answer
    std::uint32_t vocab_size = 0;         // logits beyond it are padding and never drawn
    std::uint32_t max_step_tokens = 512;  // rows of a step
    std::uint32_t max_sequences = 64;     // running at a time
    std::uint32_t max_waiting = 128;      // queued beyond those; more is refused
    // An answer's blocks serve later prompts that go on from it, not only a prompt's. A turn of a
    // conversation starts sooner, but a token computed alone differs in its last bits from the same
    // one computed in a prompt, so answers may differ from those of an empty cache.
    bool reuse_answers = false;

    // Told of every step that came back whole, on the engine's thread, which waits for it: it must
    // be quick and not throw. Empty: nobody listens.
    std::function<void(const StepRecord&)> on_step = nullptr;

    // Throws Error(kInvalidArgument) naming field, value and range.
    void validate() const;
};

enum class SubmitStatus { kAccepted, kQueueFull, kChainDown, kTooLong };

// Reads as its status; `reason` is one sentence with the numbers, empty when accepted.
struct SubmitResult {
    SubmitStatus status = SubmitStatus::kAccepted;
    std::string reason;

    operator SubmitStatus() const { return status; }  // NOLINT: a status with words attached
};

// Sums over all steps that came back from one stage of the chain.
struct StageStats {
    std::uint64_t steps = 0;
    double queue_ms = 0.0;
    double execute_ms = 0.0;
    std::uint64_t bytes_in = 0;
};

inline constexpr std::array kWaitBoundsS = {0.005, 0.01, 0.02, 0.05, 0.1,  0.2, 0.5,
                                            1.0,   2.0,  5.0,  10.0, 30.0, 60.0};
inline constexpr std::array kRowBounds = {1.0,  2.0,  4.0,   8.0,   16.0,
                                          32.0, 64.0, 128.0, 256.0, 512.0};

struct EngineStats {
    std::uint32_t running = 0;
    std::uint32_t waiting = 0;
    std::uint32_t blocks_used = 0;
    std::uint32_t blocks_cached = 0;  // of those not used: hold prompts that may come again
    std::uint32_t blocks_total = 0;
    std::uint64_t steps = 0;          // sent
    std::uint64_t tokens = 0;         // drawn
    std::uint64_t reused_tokens = 0;  // of prompts, found in the cache
    std::uint64_t preemptions = 0;
    double schedule_ms_per_step = 0.0;  // busy_ms / steps
    double busy_ms = 0.0;               // the engine thread's own work, waiting left out
    std::uint64_t steps_done = 0;       // came back whole
    double step_ms = 0.0;               // of those: sum of the times from send to result
    std::vector<StageStats> stages;     // by place in the chain
    Histogram<kWaitBoundsS.size()> first_token_s{kWaitBoundsS};  // from submission
    Histogram<kWaitBoundsS.size()> between_tokens_s{kWaitBoundsS};
    Histogram<kRowBounds.size()> step_rows{kRowBounds};
};

// One thread owns all of it: admits requests, makes steps, absorbs results, samples.
// submit(), cancel_soon(), probe(), stats() and the ChainListener calls may come from any thread.
//
// A sequence is let in when the pool can hold its prompt; until then it waits in line. When the
// pool is full the newest gives way and is computed again later, with the same bits. Where the pool
// is smaller than max_context, the pool is the context limit.
// When the chain goes down every request, waiting ones too, ends with kError / kUnavailable.
class Engine final : public ChainListener {
public:
    explicit Engine(const EngineOptions& options);
    ~Engine() override;
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // The link must outlive stop(). Called once, before the first submit.
    void start(StageLink& link);

    // Every request still open gets its finish event (kCancelled); then the thread is gone.
    // May be called again.
    void stop();

    // Throws Error(kInvalidArgument) for a request that could never be right: an empty prompt, a
    // token outside the vocabulary, max_tokens of 0, bad sampling params.
    SubmitResult submit(Request request);
    void cancel_soon();  // wakes the thread after a handle's `cancelled` was set

    // Ready: the chain is up. Health asks for more, a probe.
    bool chain_is_up() const;
    std::string chain_down_reason() const;

    // True when a step sent after this call comes back whole within `timeout`: the next step
    // of the running sequences or, when there is none to send, a row on the spare block. Needs
    // no KV blocks, so a full engine is still ready. Waits; not for the engine's own thread.
    bool probe(std::chrono::milliseconds timeout);

    EngineStats stats() const;

    void step_done(StepResult result) override;
    void chain_up(Epoch epoch) override;
    void chain_down(const std::string& reason) override;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace shardline
