#include "engine/scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace shardline {

namespace {

// While a prompt is read, others' tokens may come this much later.
constexpr double kBearableSlowdown = 1.75;
constexpr std::uint32_t kCautiousStepTokens = 64;  // beside answers, before costs are known
constexpr std::uint32_t kLeastChunk = 16;          // prompts get on, whatever they cost

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
    share_.opened(request.client);
    const SequenceId id{next_sequence_};
    next_sequence_ += request.num_answers();
    waiting_.push_back(std::make_unique<Sequence>(id, std::move(request), options_.max_context));
}

Scheduler::Waiting::iterator Scheduler::next_in_line() {
    const auto waited_for = std::find_if(waiting_.begin(), waiting_.end(),
                                         [this](const auto& other) { return other->id == turn_; });
    if (waited_for != waiting_.end()) {
        return waited_for;
    }
    return std::min_element(waiting_.begin(), waiting_.end(),
                            [this](const auto& a, const auto& b) { return has_had_less(*a, *b); });
}

bool Scheduler::has_had_less(const Sequence& one, const Sequence& other) const {
    return share_.rows_of(one.request.client) < share_.rows_of(other.request.client);
}

void Scheduler::admit() {
    while (!waiting_.empty() && running_.size() < options_.max_sequences) {
        const auto place = next_in_line();
        Sequence& sequence = **place;
        // A preempted one may have a token on its way back yet. Whose turn it is waits rather than
        // being overtaken for ever.
        if (sequence.num_steps_in_flight > 0 || !take_blocks(sequence)) {
            turn_ = sequence.id;
            return;
        }
        turn_.reset();
        sequence.status = SequenceStatus::kRunning;
        running_.push_back(std::move(*place));
        waiting_.erase(place);
        make_ready(sequence);
    }
}

bool Scheduler::take_blocks(Sequence& sequence) {
    const std::uint32_t reused =
        blocks_.reuse(sequence.kv, sequence.request.owner, sequence.prompt());
    const std::uint64_t to_spare = std::uint64_t{num_running()} * kBlockTokens;
    const std::uint32_t needed =
        BlockManager::blocks_for(sequence.num_tokens() + to_spare) - reused / kBlockTokens;
    if (needed > blocks_.num_available()) {
        blocks_.release(sequence.kv);
        return false;
    }
    const bool grown = blocks_.grow(sequence.kv, sequence.num_tokens());
    SHARDLINE_INVARIANT(grown);
    sequence.num_scheduled_tokens = reused;
    num_reused_tokens_ += reused;
    if (sequence.num_answer_tokens() == 0) {
        sequence.request.handle->num_reused_tokens = reused;
    }
    return true;
}

void Scheduler::make_ready(Sequence& sequence) {
    (sequence.num_unscheduled() == 1 ? single_ : prompts_).push_back(&sequence);
}

std::optional<ScheduledStep> Scheduler::next_step(std::uint32_t max_in_flight,
                                                  std::uint32_t num_free_steps) {
    if (single_.empty() && prompts_.empty()) {
        return std::nullopt;
    }
    const std::uint32_t num_answering = this->num_answering();
    ScheduledStep step = empty_step();
    for (Sequence* sequence : choose_single_tokens(num_answering, max_in_flight)) {
        add_span(step, *sequence, 1);
    }
    if (!prompts_.empty()) {
        take_prompts(step, step_budget(step_rows(step), num_answering, max_in_flight),
                     num_free_steps);
    }
    if (step.spans.empty()) {
        return std::nullopt;
    }
    return step;
}

std::vector<Sequence*> Scheduler::choose_single_tokens(std::uint32_t num_answering,
                                                       std::uint32_t max_in_flight) {
    // Prompts make progress even when answers alone would fill every step.
    const std::uint32_t reserve = prompts_.empty() ? 0 : kLeastStepTokens;
    const std::uint32_t budget = std::max(options_.max_step_tokens - reserve, 1U);
    std::vector<Sequence*> chosen;
    while (chosen.empty() && !single_.empty()) {  // again when all that were chosen gave way
        const std::size_t count =
            std::min<std::size_t>({share(num_answering, max_in_flight), budget, single_.size()});
        chosen.assign(single_.begin(), single_.begin() + static_cast<std::ptrdiff_t>(count));
        make_room(chosen);
    }
    return chosen;
}

// Gives each a place for its token, if need be that of who came last, who then drops out.
void Scheduler::make_room(std::vector<Sequence*>& chosen) {
    while (true) {
        const auto lacking = std::find_if(chosen.begin(), chosen.end(), [this](Sequence* sequence) {
            return !blocks_.grow(sequence->kv, std::uint64_t{sequence->num_tokens()});
        });
        if (lacking == chosen.end()) {
            return;
        }
        Sequence* newest = nullptr;
        for (const auto& sequence : running_) {
            if (sequence->status == SequenceStatus::kRunning &&
                (newest == nullptr || newest->id < sequence->id)) {
                newest = sequence.get();
            }
        }
        std::erase(chosen, newest);
        preempt(*newest);
    }
}

void Scheduler::preempt(Sequence& sequence) {
    ++num_preemptions_;
    blocks_.release(sequence.kv);
    sequence.num_scheduled_tokens = 0;
    sequence.status = SequenceStatus::kWaiting;
    std::erase(single_, &sequence);
    std::erase(prompts_, &sequence);
    const auto place = std::find_if(running_.begin(), running_.end(),
                                    [&](const auto& other) { return other.get() == &sequence; });
    waiting_.push_front(std::move(*place));
    running_.erase(place);
}

// Rows of a step that holds so many answers' tokens already.
std::uint32_t Scheduler::step_budget(std::uint32_t num_single_rows, std::uint32_t num_answering,
                                     std::uint32_t max_in_flight) const {
    const auto line = cost_.line();
    double rows = options_.max_step_tokens;
    if (num_answering > 0) {
        const double bearable = line ? kBearableSlowdown * line->ms(num_single_rows) : 0.0;
        rows = !line                    ? kCautiousStepTokens
               : line->per_row_ms > 0.0 ? (bearable - line->fixed_ms) / line->per_row_ms
                                        : rows;
    } else if (max_in_flight > 1 && line && line->per_row_ms > 0.0) {
        // n tokens in chunks of c are through s stages after (n/c + s - 1) (fixed + per_row c),
        // which is least where its derivative by c is 0. All chunks alike: the largest decides.
        double tokens = 0.0;
        for (const Sequence* sequence : prompts_) {
            tokens += sequence->num_tokens();
        }
        rows = std::sqrt(tokens * line->fixed_ms / (line->per_row_ms * (max_in_flight - 1)));
    }
    const double least = num_single_rows + kLeastChunk;
    return std::min(options_.max_step_tokens, static_cast<std::uint32_t>(std::max(rows, least)));
}

void Scheduler::take_prompts(ScheduledStep& step, std::uint32_t step_tokens,
                             std::uint32_t num_free_steps) {
    std::uint32_t count = share(prompts_.size(), num_free_steps);
    order_prompts();
    for (Sequence* sequence : prompts_) {
        if (count == 0 || step_rows(step) + 2 > step_tokens) {
            return;
        }
        const std::uint32_t budget = step_tokens - step_rows(step);
        const std::uint32_t prompt_left = sequence->num_unscheduled_prompt_tokens();
        const std::uint32_t chunk = prompt_left > 0 ? chunk_size(prompt_left, budget)
                                                    : std::min(sequence->num_unscheduled(), budget);
        if (chunk > 0) {
            add_span(step, *sequence, chunk);
            --count;
        }
    }
}

void Scheduler::order_prompts() {
    std::stable_sort(prompts_.begin(), prompts_.end(),
                     [this](Sequence* a, Sequence* b) { return has_had_less(*a, *b); });
}

// Of a prompt, one span of all tokens; of an answer, one of each.
void Scheduler::add_span(ScheduledStep& step, Sequence& sequence, std::uint32_t num_tokens) {
    const std::uint32_t past_len = sequence.num_scheduled_tokens;
    for (std::uint32_t i = 0; i < num_tokens; ++i) {
        append_token(step, sequence.tokens[past_len + i]);
    }
    const std::uint32_t per_span = sequence.num_unscheduled_prompt_tokens() > 0 ? num_tokens : 1;
    for (std::uint32_t i = 0; i < num_tokens; i += per_span) {
        std::vector<BlockId> table = sequence.kv.blocks;
        table.resize(BlockManager::blocks_for(std::uint64_t{past_len} + i + per_span));
        step.plan.spans.push_back({sequence.id, past_len + i, per_span, std::move(table)});
    }
    if (sequence.kv.copied_from) {
        step.plan.copy_blocks.push_back({*sequence.kv.copied_from, sequence.kv.blocks.back()});
    }
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
        count_service(*span.sequence, span.num_tokens);
        if (span.sequence->kv.copied_from) {
            blocks_.copied(span.sequence->kv);
        }
        if (!single_.empty() && single_.front() == span.sequence) {
            single_.pop_front();
        }
    }
    std::erase_if(prompts_,
                  [](const Sequence* sequence) { return sequence->num_unscheduled() == 0; });
}

// What is computed again, after it gave way, is nobody's wish.
void Scheduler::count_service(Sequence& sequence, std::uint32_t num_tokens) {
    const std::uint32_t end = sequence.num_scheduled_tokens;
    const std::uint32_t begin = std::max(end - num_tokens, sequence.num_served_tokens);
    if (end > begin) {
        share_.served(sequence.request.client, end - begin);
        sequence.num_served_tokens = end;
    }
}

void Scheduler::step_computed(const ScheduledSpan& span) {
    Sequence& sequence = *span.sequence;
    // Results come in any order, so only when all are there is it certain what was computed.
    if (sequence.status == SequenceStatus::kRunning && sequence.num_steps_in_flight == 1) {
        const std::uint32_t of_use =
            options_.reuse_answers ? sequence.num_tokens() : sequence.num_prompt_tokens;
        const std::uint32_t computed = std::min(sequence.num_scheduled_tokens, of_use);
        blocks_.remember(sequence.kv, sequence.request.owner,
                         std::span(sequence.tokens).first(computed));
    }
}

void Scheduler::step_returned(const ScheduledSpan& span) {
    Sequence& sequence = *span.sequence;
    --sequence.num_steps_in_flight;
    if (sequence.status == SequenceStatus::kFinished && sequence.num_steps_in_flight == 0) {
        erase(sequence);
    }
}

void Scheduler::append(Sequence& sequence, std::int64_t token) {
    const bool preempted = sequence.status == SequenceStatus::kWaiting;
    SHARDLINE_INVARIANT(preempted || sequence.num_unscheduled() == 0);
    sequence.tokens.push_back(token);
    if (!preempted) {
        make_ready(sequence);
    }
}

Sequence& Scheduler::fork(const Sequence& sequence, const Fork& fork, std::uint64_t index) {
    Request request = sequence.request;
    request.prompt.assign(sequence.prompt().begin(), sequence.prompt().end());
    request.sampling = fork.sampling;
    request.handle = fork.handle;
    request.forks.clear();
    auto owned = std::make_unique<Sequence>(SequenceId{to_number(sequence.id) + index},
                                            std::move(request), options_.max_context);
    Sequence& forked = *owned;
    share_.opened(forked.request.client);
    forked.num_served_tokens = forked.num_prompt_tokens;
    // As when one is let in: a block to spare for each that runs.
    const bool room =
        running_.size() < options_.max_sequences && blocks_.num_available() > running_.size();
    if (room && blocks_.fork(sequence.kv, forked.num_prompt_tokens, forked.kv)) {
        forked.num_scheduled_tokens = forked.num_prompt_tokens;
        forked.status = SequenceStatus::kRunning;
        running_.push_back(std::move(owned));
    } else {
        waiting_.push_front(std::move(owned));
    }
    return forked;
}

void Scheduler::finish(Sequence& sequence) {
    const bool was_waiting = sequence.status == SequenceStatus::kWaiting;
    sequence.status = SequenceStatus::kFinished;
    if (was_waiting) {
        const auto place = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& other) {
            return other.get() == &sequence;
        });
        if (sequence.num_steps_in_flight > 0) {  // preempted, and goes with its last step
            running_.push_back(std::move(*place));
        } else {
            share_.closed(sequence.request.client);
        }
        waiting_.erase(place);
        return;
    }
    std::erase(single_, &sequence);
    std::erase(prompts_, &sequence);
    if (sequence.num_steps_in_flight == 0) {
        erase(sequence);
    }
}

void Scheduler::erase(Sequence& sequence) {
    blocks_.release(sequence.kv);
    share_.closed(sequence.request.client);
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
        SHARDLINE_INVARIANT(sequence->kv.blocks.empty() && sequence->num_scheduled_tokens == 0);
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
