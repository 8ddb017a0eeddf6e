#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/block_manager.hpp"
#include "engine/fair_share.hpp"
#include "engine/sequence.hpp"
#include "engine/step_cost.hpp"
#include "step/step.hpp"

namespace shardline {

// One sequence's part in a step.
struct ScheduledSpan {
    Sequence* sequence = nullptr;  // lives until its last step has come back
    std::uint32_t num_tokens = 0;
    std::optional<std::uint32_t> sampled_output;  // row of the outputs to sample from
};

struct ScheduledStep {
    StepPlan plan;  // epoch and step id are the engine's to fill in
    Activations inputs;
    std::vector<ScheduledSpan> spans;
};

// A one-token span and a prompt chunk fit into the smallest step.
inline constexpr std::uint32_t kLeastStepTokens = 3;

struct SchedulerOptions {
    std::uint32_t num_blocks = 0;       // of every stage's pool, spare block included
    std::uint32_t max_context = 0;      // tokens per sequence; the pool holds at least one such
    std::uint32_t max_step_tokens = 0;  // rows of a step, at least kLeastStepTokens
    std::uint32_t max_sequences = 0;    // running at a time
    bool reuse_answers = false;         // see EngineOptions
};

// Who runs and what the next step computes. Keeps two of the three rules of bit-reproducibility
// (docs/decisions): an answer's token is a span of its own; a prompt runs in spans of at least two
// tokens. That a lone row gets the company it needs is the stages' part.
//
//     add() -> waiting -> admit() -> running -> finish() -> gone when no step is in flight
//                 ▲                     │
//                 └──── preempted ──────┘
//
// A sequence is let in when there are blocks for what it has to compute and one to spare for each
// that runs. Of those who wait, the client that has had least goes first, with what it asked first,
// and nobody overtakes it while it waits for blocks; of prompts under way likewise. When blocks run
// out while answers grow, the one that came last gives its blocks back and waits again; what
// it had is computed again later, prompt as prompt and every token of the answer as a span of its
// own, so its bits stay the same. The oldest always gets on, and the pool holds any one sequence.
//
// How much of the prompts goes into a step follows from what steps cost, which step_timed() tells:
// beside answers so much that those who wait for their next token hardly notice; alone so much that
// the first token comes soonest, with the chunks following each other through the stages.
//
// Blocks may change hands while steps that write to them are in flight: every stage runs steps in
// order, so what the new holder writes comes after.
// Owned by the engine, called from its thread.
class Scheduler final {
public:
    explicit Scheduler(const SchedulerOptions& options);

    // Puts a request whose prompt is shorter than max_context at the end of the waiting line.
    void add(Request request);

    // Moves waiting sequences to running while sequences and blocks allow.
    void admit();

    // What to compute next, if anything. `num_free_steps` of `max_in_flight` can still be sent;
    // the sequences that are ready are shared out among them. Nothing is taken for sent before
    // commit(), so a step that the link refuses is simply made again later.
    std::optional<ScheduledStep> next_step(std::uint32_t max_in_flight,
                                           std::uint32_t num_free_steps);
    void commit(const std::vector<ScheduledSpan>& spans);

    // A row on the spare block: runs the whole chain and touches nobody's KV.
    ScheduledStep probe_step() const;

    // The step came back whole: what it computed of a prompt may serve others from now on. Before
    // its output is sampled, step_returned() after.
    void step_computed(const ScheduledSpan& span);

    // The other end of commit(): the step is no longer in flight. A finished sequence goes with
    // its last step, then the pointer is dead.
    void step_returned(const ScheduledSpan& span);

    // A step of `rows` rows kept the slowest stage busy for so long.
    void step_timed(std::uint32_t rows, double slowest_stage_ms) {
        cost_.observe(rows, slowest_stage_ms);
    }

    // A sampled token that the answer goes on with.
    void append(Sequence& sequence, std::int64_t token);

    // Another sequence with the same prompt, all of which has been computed. Where there is no room
    // for it now it waits, as one that was preempted. It has no token yet: append() or finish()
    // next.
    // `index`: its place in the request's forks, from 1.
    Sequence& fork(const Sequence& sequence, const Fork& fork, std::uint64_t index);

    // It takes part in no further step. Deletes it unless it has steps in flight.
    void finish(Sequence& sequence);

    // The stages have lost their KV: no prompt is known any more.
    void forget_prefixes() { blocks_.forget(); }

    // Every sequence that is not finished, waiting ones last.
    std::vector<Sequence*> unfinished() const;

    std::uint32_t num_running() const { return static_cast<std::uint32_t>(running_.size()); }
    std::uint32_t num_waiting() const { return static_cast<std::uint32_t>(waiting_.size()); }
    std::uint64_t num_preemptions() const { return num_preemptions_; }
    std::uint64_t num_reused_tokens() const { return num_reused_tokens_; }  // of prompts
    const BlockManager& blocks() const { return blocks_; }

    // Aborts when blocks, queues and sequences contradict each other.
    void check_integrity() const;

private:
    using Waiting = std::deque<std::unique_ptr<Sequence>>;

    Waiting::iterator next_in_line();
    bool has_had_less(const Sequence& one, const Sequence& other) const;  // their clients
    bool take_blocks(Sequence& sequence);
    std::vector<Sequence*> choose_single_tokens(std::uint32_t num_answering,
                                                std::uint32_t max_in_flight);
    void make_room(std::vector<Sequence*>& chosen);
    void preempt(Sequence& sequence);
    std::uint32_t step_budget(std::uint32_t num_single_rows, std::uint32_t num_answering,
                              std::uint32_t max_in_flight) const;
    void take_prompts(ScheduledStep& step, std::uint32_t step_tokens, std::uint32_t num_free_steps);
    void order_prompts();
    void add_span(ScheduledStep& step, Sequence& sequence, std::uint32_t num_tokens);
    std::uint32_t num_answering() const;
    void make_ready(Sequence& sequence);
    void count_service(Sequence& sequence, std::uint32_t num_tokens);
    void erase(Sequence& sequence);

    const SchedulerOptions options_;
    BlockManager blocks_;
    StepCost cost_;
    FairShare share_;
    Waiting waiting_;                 // preempted ones first
    std::optional<SequenceId> turn_;  // of whom the others wait for: there were no blocks for it
    std::vector<std::unique_ptr<Sequence>> running_;  // finished ones with steps in flight too
    std::deque<Sequence*> single_;   // one token to compute, by how long they have been ready
    std::deque<Sequence*> prompts_;  // two or more tokens to compute
    std::uint64_t next_sequence_ = 1;
    std::uint64_t num_preemptions_ = 0;
    std::uint64_t num_reused_tokens_ = 0;
};

}  // namespace shardline
