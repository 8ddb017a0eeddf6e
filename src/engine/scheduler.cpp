#include "engine/scheduler.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace shardline {

namespace {

std::uint32_t share(std::size_t count, std::uint32_t parts) {
    const std::size_t divisor = std::max(parts, 1U);
    return static_cast<std::uint32_t>((count + divisor - 1) / divisor);
}

std::uint32_t step_rows(const ScheduledStep& step) {
    return static_cast<std::uint32_t>(step.inputs.front().shape.front());
}

void append_token(ScheduledStep& step, std::int64_t token) {
    Tensor& ids = step.inputs.front();
    ids.bytes.append(sizeof token, '\0');
    std::memcpy(ids.bytes.data() + ids.bytes.size() - sizeof token, &token, sizeof token);
    ++ids.shape.front();
}

ScheduledStep empty_step() {
    ScheduledStep step;
    step.inputs.push_back({"input_ids", ElementType::kI64, {0}, {}});
    return step;
}

// Of a prompt with `remaining` tokens left, at most `budget`, at least two and never so many that
// one alone is left over. 0 when that cannot be.
std::uint32_t chunk_size(std::uint32_t remaining, std::uint32_t budget) {
    if (remaining <= budget) {
        return remaining;
    }
    const std::uint32_t chunk = remaining - budget == 1 ? budget - 1 : budget;
    return chunk >= 2 ? chunk : 0;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options), blocks_(options.num_blocks) {}

void Scheduler::add(Request request) {
    SHARDLINE_INVARIANT(!request.prompt.empty() && request.prompt.size() < options_.max_context);
    waiting_.push_back(std::make_unique<Sequence>(SequenceId{next_sequence_++}, std::move(request),
                                                  options_.max_context));
}

void Scheduler::admit() {
    while (!waiting_.empty() && running_.size() < options_.max_sequences) {
        Sequence& sequence = *waiting_.front();
        if (!blocks_.promise(sequence.kv, sequence.max_positions())) {
            return;  // the first in line waits rather than being overtaken for ever
        }
        sequence.status = SequenceStatus::kRunning;
        running_.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
        make_ready(sequence);
    }
}

void Scheduler::make_ready(Sequence& sequence) {
    (sequence.num_unscheduled() == 1 ? single_ : prompts_).push_back(&sequence);
}

std::optional<ScheduledStep> Scheduler::next_step(std::uint32_t max_in_flight,
                                                  std::uint32_t num_free_steps) {
    if (single_.empty() && prompts_.empty()) {
        return std::nullopt;
    }
    ScheduledStep step = empty_step();
    take_single_tokens(step, max_in_flight);
    take_prompts(step, num_free_steps);
    if (step.spans.empty()) {
        return std::nullopt;
    }
    return step;
}

void Scheduler::take_single_tokens(ScheduledStep& step, std::uint32_t max_in_flight) {
    // Prompts make progress even when answers alone would fill every step.
    const std::uint32_t reserve = prompts_.empty() ? 0 : kLeastStepTokens;
    const std::uint32_t budget = std::max(options_.max_step_tokens - reserve, 1U);
    const std::uint32_t count = std::min(share(num_answering(), max_in_flight), budget);
    for (std::size_t i = 0; i < single_.size() && i < count; ++i) {
        add_span(step, *single_[i], 1);
    }
}

void Scheduler::take_prompts(ScheduledStep& step, std::uint32_t num_free_steps) {
    std::uint32_t count = share(prompts_.size(), num_free_steps);
    for (Sequence* sequence : prompts_) {
        const std::uint32_t budget = options_.max_step_tokens - step_rows(step);
        if (count == 0 || budget < 2) {
            return;
        }
        const std::uint32_t chunk = chunk_size(sequence->num_unscheduled(), budget);
        if (chunk > 0) {
            add_span(step, *sequence, chunk);
            --count;
        }
    }
}

void Scheduler::add_span(ScheduledStep& step, Sequence& sequence, std::uint32_t num_tokens) {
    const std::uint32_t past_len = sequence.num_scheduled_tokens;
    blocks_.grow(sequence.kv, std::uint64_t{past_len} + num_tokens);
    for (std::uint32_t i = 0; i < num_tokens; ++i) {
        append_token(step, sequence.tokens[past_len + i]);
    }
    step.plan.spans.push_back({sequence.id, past_len, num_tokens, sequence.kv.blocks});
    ScheduledSpan span{&sequence, num_tokens, std::nullopt};
    if (num_tokens == sequence.num_unscheduled()) {
        span.sampled_output = static_cast<std::uint32_t>(step.plan.kept_rows.size());
        step.plan.kept_rows.push_back(step_rows(step) - 1);
    }
    step.spans.push_back(span);
}

ScheduledStep Scheduler::probe_step() const {
    ScheduledStep step = empty_step();
    append_token(step, 0);
    step.plan.kept_rows.push_back(0);
    step.plan.spans.push_back({kSpareSequence, 0, 1, {kSpareBlock}});
    return step;
}

std::uint32_t Scheduler::num_answering() const {
    return static_cast<std::uint32_t>(
        std::count_if(running_.begin(), running_.end(), [](const auto& sequence) {
            return sequence->status == SequenceStatus::kRunning &&
                   (sequence->num_answer_tokens() > 0 || sequence->num_prompt_tokens == 1);
        }));
}

void Scheduler::commit(const std::vector<ScheduledSpan>& spans) {
    for (const ScheduledSpan& span : spans) {
        span.sequence->num_scheduled_tokens += span.num_tokens;
        ++span.sequence->num_steps_in_flight;
        if (span.num_tokens == 1) {
            SHARDLINE_INVARIANT(single_.front() == span.sequence);
            single_.pop_front();
        }
    }
    std::erase_if(prompts_,
                  [](const Sequence* sequence) { return sequence->num_unscheduled() == 0; });
}

void Scheduler::step_returned(const ScheduledSpan& span) {
    Sequence& sequence = *span.sequence;
    --sequence.num_steps_in_flight;
    if (sequence.status == SequenceStatus::kFinished && sequence.num_steps_in_flight == 0) {
        erase_running(sequence);
    }
}

void Scheduler::append(Sequence& sequence, std::int64_t token) {
    SHARDLINE_INVARIANT(sequence.num_unscheduled() == 0);
    sequence.tokens.push_back(token);
    make_ready(sequence);
}

void Scheduler::finish(Sequence& sequence) {
    const bool was_waiting = sequence.status == SequenceStatus::kWaiting;
    sequence.status = SequenceStatus::kFinished;
    if (was_waiting) {
        std::erase_if(waiting_, [&](const auto& other) { return other.get() == &sequence; });
        return;
    }
    std::erase(single_, &sequence);
    std::erase(prompts_, &sequence);
    if (sequence.num_steps_in_flight == 0) {
        erase_running(sequence);
    }
}

void Scheduler::erase_running(Sequence& sequence) {
    blocks_.release(sequence.kv);
    std::erase_if(running_, [&](const auto& other) { return other.get() == &sequence; });
}

std::vector<Sequence*> Scheduler::unfinished() const {
    std::vector<Sequence*> sequences;
    for (const auto& sequence : running_) {
        if (sequence->status != SequenceStatus::kFinished) {
            sequences.push_back(sequence.get());
        }
    }
    for (const auto& sequence : waiting_) {
        sequences.push_back(sequence.get());
    }
    return sequences;
}

void Scheduler::check_integrity() const {
    std::vector<const SequenceBlocks*> held;
    for (const auto& sequence : running_) {
        held.push_back(&sequence->kv);
        SHARDLINE_INVARIANT(sequence->status != SequenceStatus::kWaiting);
        SHARDLINE_INVARIANT(sequence->num_scheduled_tokens <= sequence->num_tokens());
        SHARDLINE_INVARIANT(sequence->status == SequenceStatus::kRunning ||
                            sequence->num_steps_in_flight > 0);
    }
    for (const auto& sequence : waiting_) {
        SHARDLINE_INVARIANT(sequence->kv.blocks.empty() && sequence->kv.num_promised == 0);
    }
    for (const Sequence* sequence : single_) {
        SHARDLINE_INVARIANT(sequence->num_unscheduled() == 1);
    }
    for (const Sequence* sequence : prompts_) {
        SHARDLINE_INVARIANT(sequence->num_unscheduled() >= 2);
    }
    blocks_.check_integrity(held);
}

}  // namespace shardline
