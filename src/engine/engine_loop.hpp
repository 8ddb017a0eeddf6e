#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/inbox.hpp"
#include "engine/logits_output.hpp"
#include "engine/scheduler.hpp"
#include "sampling/sampler.hpp"
#include "step/stage_link.hpp"

namespace shardline {

// What the engine's thread does with its mail, round after round:
//
//     results -> sample, events    chain news    cancels    submissions    -> steps to the link
//
// Owns sequences, blocks and the list of steps in flight. Everything on the engine's thread.
class EngineLoop final {
public:
    EngineLoop(const EngineOptions& options, Inbox& inbox, StageLink& link);

    // One round. Never waits. What it takes out of the mail is gone from it: requests lose their
    // handle, probes are emptied; after an exception the rest is still the caller's to answer.
    void handle(Mail& mail);

    // How long to wait for mail; nothing: as long as it takes.
    std::optional<std::chrono::milliseconds> patience() const;

    // Ends every open request with `finish` and forgets the steps in flight.
    void end_everything(const FinishEvent& finish);

    // Asks the stages to skip what is still on its way to them.
    void cancel_steps_in_flight();

    // Adds `busy` to what the thread has worked.
    EngineStats stats(std::chrono::nanoseconds busy);

private:
    using Clock = std::chrono::steady_clock;

    struct StepInFlight {
        StepId step{};
        std::uint32_t num_rows = 0;
        std::uint32_t num_kept_rows = 0;
        std::uint32_t num_prompt_tokens = 0;  // of the rows
        std::vector<ScheduledSpan> spans;
        std::vector<std::promise<bool>> probes;  // answered by this step
        Clock::time_point sent;
        bool cancelled = false;
    };

    void check_when_idle();
    void apply(const ChainNews& news);
    void end_cancelled();
    void cancel_idle_steps();

    void absorb(StepResult result);
    std::string fault_of(const StepResult& result, const LogitsOutput& logits) const;
    void absorb_span(const ScheduledSpan& span, const std::string& fault,
                     const LogitsOutput& logits);
    void sample_all(Sequence& sequence, std::span<const float> logits);
    void sample_unless_cancelled(Sequence& sequence, std::span<const float> logits);
    void sample(Sequence& sequence, std::span<const float> logits);
    void note_token(Sequence& sequence);
    void end(Sequence& sequence, const FinishEvent& finish);
    void count(const StepResult& result, const StepInFlight& step, Clock::time_point returned);
    void report(const StepResult& result, const StepInFlight& step, Clock::time_point returned);

    void send_steps();
    bool send(ScheduledStep step);
    void give_up_on_refusing_link();
    void answer_probes(std::vector<std::promise<bool>>& probes, bool whole);

    const EngineOptions options_;
    Inbox& inbox_;
    StageLink& link_;
    Scheduler scheduler_;
    Sampler sampler_;
    std::vector<StepInFlight> in_flight_;
    std::vector<std::promise<bool>> probes_;  // waiting for a step to be sent
    std::optional<Epoch> epoch_;              // of the chain that is up
    std::string down_reason_;                 // when there is none
    std::optional<Clock::time_point> refused_since_;
    std::uint64_t next_step_ = 1;
    bool was_idle_ = true;
    bool ended_in_flight_ = false;  // some step may have nobody waiting for it
    EngineStats stats_;
};

}  // namespace shardline
