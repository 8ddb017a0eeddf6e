#include "engine/engine_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "engine/step_timeline.hpp"

namespace shardline {

namespace {

constexpr std::chrono::milliseconds kRetryRefused{20};
constexpr std::chrono::seconds kRefusalLimit{5};
constexpr std::size_t kMaxStages = 256;  // a larger stage index in a timing is noise

FinishEvent failure(ErrorCode code, std::string text) {
    return {FinishReason::kError, code, std::move(text)};
}

double milliseconds(std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

// It gave way while the end of its prompt was on its way. The row will come again, with blocks for
// the others to share.
bool has_nothing_to_fork_from(const Sequence& sequence) {
    return sequence.status == SequenceStatus::kWaiting && !sequence.request.forks.empty();
}

SchedulerOptions scheduler_options(const EngineOptions& options) {
    return {options.num_blocks, options.max_context, options.max_step_tokens, options.max_sequences,
            options.reuse_answers};
}

}  // namespace

EngineLoop::EngineLoop(const EngineOptions& options, Inbox& inbox, StageLink& link)
    : options_(options), inbox_(inbox), link_(link), scheduler_(scheduler_options(options)) {}

void EngineLoop::handle(Mail& mail) {
    // Results first: those of the chain that was up are still good when it went down since.
    for (StepResult& result : mail.results) {
        absorb(std::move(result));
    }
    if (mail.chain) {
        apply(*mail.chain);
    }
    for (Request& request : mail.submissions) {
        scheduler_.add(std::move(request));
    }
    if (mail.cancels) {
        end_cancelled();
    }
    std::move(mail.probes.begin(), mail.probes.end(), std::back_inserter(probes_));
    mail.probes.clear();
    if (!epoch_) {
        end_everything(failure(ErrorCode::kUnavailable, down_reason_));
        return;
    }
    if (ended_in_flight_) {
        cancel_idle_steps();
    }
    scheduler_.admit();
    send_steps();
    check_when_idle();
}

// The moment when nothing may be left over, and when looking costs nobody anything.
void EngineLoop::check_when_idle() {
    const bool idle = scheduler_.num_running() + scheduler_.num_waiting() == 0;
    if (idle && !was_idle_) {
        scheduler_.check_integrity();
    }
    was_idle_ = idle;
}

std::optional<std::chrono::milliseconds> EngineLoop::patience() const {
    return refused_since_ ? std::optional(kRetryRefused) : std::nullopt;
}

void EngineLoop::apply(const ChainNews& news) {
    end_everything(failure(ErrorCode::kUnavailable, news.lost_because));
    down_reason_ = news.lost_because;
    epoch_ = news.up ? std::optional(news.epoch) : std::nullopt;
    if (news.up) {
        room_logger("engine")->info("chain up, epoch {}", to_number(news.epoch));
    } else {
        room_logger("engine")->warn("chain down: {}", news.lost_because);
    }
}

void EngineLoop::end_everything(const FinishEvent& finish) {
    // Steps first: a sequence that ends with none in flight gives its blocks back at once.
    for (StepInFlight& step : in_flight_) {
        answer_probes(step.probes, false);
        for (const ScheduledSpan& span : step.spans) {
            scheduler_.step_returned(span);
        }
    }
    in_flight_.clear();
    answer_probes(probes_, false);
    refused_since_.reset();
    for (Sequence* sequence : scheduler_.unfinished()) {
        end(*sequence, finish);
    }
    scheduler_.forget_prefixes();
    scheduler_.check_integrity();
}

void EngineLoop::cancel_steps_in_flight() {
    for (const StepInFlight& step : in_flight_) {
        if (epoch_ && !step.cancelled) {
            link_.cancel(*epoch_, step.step);
        }
    }
}

void EngineLoop::end_cancelled() {
    for (Sequence* sequence : scheduler_.unfinished()) {
        if (sequence->cancelled()) {
            end(*sequence, {FinishReason::kCancelled, ErrorCode::kInternal, {}});
        }
    }
}

// Newest first: a prompt's chunk must not be skipped while a later chunk, kept for its neighbours,
// still reads what it would have written.
void EngineLoop::cancel_idle_steps() {
    ended_in_flight_ = false;
    std::vector<const Sequence*> kept;
    for (auto step = in_flight_.rbegin(); step != in_flight_.rend(); ++step) {
        const bool wanted =
            !step->probes.empty() ||
            std::any_of(step->spans.begin(), step->spans.end(), [&](const ScheduledSpan& span) {
                return span.sequence->status != SequenceStatus::kFinished ||
                       std::find(kept.begin(), kept.end(), span.sequence) != kept.end();
            });
        if (wanted) {
            for (const ScheduledSpan& span : step->spans) {
                kept.push_back(span.sequence);
            }
        } else if (!step->cancelled) {
            step->cancelled = true;
            link_.cancel(*epoch_, step->step);
        }
    }
}

void EngineLoop::absorb(StepResult result) {
    const Clock::time_point returned = Clock::now();
    const auto place =
        std::find_if(in_flight_.begin(), in_flight_.end(),
                     [&](const StepInFlight& step) { return step.step == result.step; });
    if (!epoch_ || result.epoch != *epoch_ || place == in_flight_.end()) {
        room_logger("engine")->debug("result of step {}, epoch {} is stale, dropped",
                                     to_number(result.step), to_number(result.epoch));
        return;
    }
    StepInFlight step = std::move(*place);
    in_flight_.erase(place);
    const std::uint32_t num_kept_rows = result.status == StepStatus::kDone ? step.num_kept_rows : 0;
    const LogitsOutput logits(result.outputs, num_kept_rows, options_.vocab_size);
    const std::string fault = fault_of(result, logits);
    if (fault.empty()) {
        count(result, step, returned);
    } else if (!step.cancelled) {
        room_logger("engine")->warn("step {}, epoch {}: {}", to_number(result.step),
                                    to_number(result.epoch), fault);
    }
    answer_probes(step.probes, fault.empty());
    for (const ScheduledSpan& span : step.spans) {
        absorb_span(span, fault, logits);
    }
    if (options_.on_step && fault.empty()) {
        report(result, step, returned);
    }
}

std::string EngineLoop::fault_of(const StepResult& result, const LogitsOutput& logits) const {
    switch (result.status) {
        case StepStatus::kDone: return logits.fault();
        case StepStatus::kCancelled: return "the step was cancelled on its way";
        case StepStatus::kFailed: return result.error.empty() ? "a stage failed" : result.error;
    }
    return "the result has an unknown status";
}

void EngineLoop::absorb_span(const ScheduledSpan& span, const std::string& fault,
                             const LogitsOutput& logits) {
    Sequence& sequence = *span.sequence;
    if (fault.empty()) {
        scheduler_.step_computed(span);
    }
    if (sequence.status != SequenceStatus::kFinished) {
        if (sequence.cancelled()) {
            end(sequence, {FinishReason::kCancelled, ErrorCode::kInternal, {}});
        } else if (!fault.empty()) {
            end(sequence, failure(ErrorCode::kInternal, fault));
        } else if (span.sampled_output && !has_nothing_to_fork_from(sequence)) {
            sample_all(sequence, logits.row(*span.sampled_output));
        }
    }
    scheduler_.step_returned(span);
}

// Its token and, when this is the end of the prompt, the first of every answer that forks from it.
void EngineLoop::sample_all(Sequence& sequence, std::span<const float> logits) {
    std::vector<Sequence*> forks;
    // The last first, so that those who have to wait stand in their order.
    for (auto& wanted = sequence.request.forks; !wanted.empty(); wanted.pop_back()) {
        forks.push_back(&scheduler_.fork(sequence, wanted.back(), wanted.size()));
    }
    sample_unless_cancelled(sequence, logits);
    for (auto fork = forks.rbegin(); fork != forks.rend(); ++fork) {
        sample_unless_cancelled(**fork, logits);
    }
}

void EngineLoop::sample_unless_cancelled(Sequence& sequence, std::span<const float> logits) {
    if (sequence.cancelled()) {
        end(sequence, {FinishReason::kCancelled, ErrorCode::kInternal, {}});
    } else {
        sample(sequence, logits);
    }
}

void EngineLoop::sample(Sequence& sequence, std::span<const float> logits) {
    std::optional<SampledToken> sampled =
        sampler_.sample(logits, sequence.request.sampling, {sequence.prompt(), sequence.answer()},
                        sequence.num_tokens());
    if (!sampled) {
        end(sequence, failure(ErrorCode::kInternal,
                              "the last stage returned logits without a distribution: none is a "
                              "finite number or all are equal"));
        return;
    }
    ++stats_.tokens;
    const std::int64_t token = sampled->token;
    if (sequence.stops_at(token)) {  // before the length: a stop at the very end is a stop
        end(sequence, {FinishReason::kStop, ErrorCode::kInternal, {}});
        return;
    }
    note_token(sequence);
    RequestEvent event;
    event.token = TokenEvent{token, sampled->logprob, std::move(sampled->top_logprobs)};
    if (!sequence.request.handle->events.try_push(std::move(event))) {
        end(sequence, {FinishReason::kCancelled, ErrorCode::kInternal, {}});
    } else if (sequence.num_answer_tokens() + 1 == sequence.max_answer_tokens) {
        end(sequence, {FinishReason::kLength, ErrorCode::kInternal, {}});
    } else {
        scheduler_.append(sequence, token);
    }
}

void EngineLoop::note_token(Sequence& sequence) {
    const auto now = Clock::now();
    auto& histogram =
        sequence.num_answer_tokens() == 0 ? stats_.first_token_s : stats_.between_tokens_s;
    histogram.add(std::chrono::duration<double>(now - sequence.last_event).count());
    sequence.last_event = now;
}

void EngineLoop::end(Sequence& sequence, const FinishEvent& finish) {
    ended_in_flight_ = ended_in_flight_ || sequence.num_steps_in_flight > 0;
    const Request request = sequence.request;
    scheduler_.finish(sequence);
    inbox_.request_closed(request);  // before the event: who has seen the end may submit again
    send_finish(request, finish);
}

void EngineLoop::count(const StepResult& result, const StepInFlight& step,
                       Clock::time_point returned) {
    ++stats_.steps_done;
    stats_.step_ms += milliseconds(returned - step.sent);
    stats_.step_rows.add(step.num_rows);
    std::uint32_t slowest_us = 0;
    for (const StageTiming& timing : result.timings) {
        if (timing.stage >= kMaxStages) {
            continue;
        }
        stats_.stages.resize(std::max<std::size_t>(stats_.stages.size(), timing.stage + 1U));
        StageStats& stage = stats_.stages[timing.stage];
        ++stage.steps;
        slowest_us = std::max(slowest_us, timing.execute_us);
        stage.queue_ms += timing.queue_us / 1000.0;
        stage.execute_ms += timing.execute_us / 1000.0;
        stage.bytes_in += timing.bytes_in;
    }
    scheduler_.step_timed(step.num_rows, slowest_us / 1000.0);
}

// After the step's tokens were drawn: who has just got the last one no longer runs.
void EngineLoop::report(const StepResult& result, const StepInFlight& step,
                        Clock::time_point returned) {
    std::uint32_t num_tokens = 0;  // a probe's row is nobody's
    for (const ScheduledSpan& span : step.spans) {
        num_tokens += span.num_tokens;
    }
    options_.on_step({.step = step.step,
                      .num_rows = step.num_rows,
                      .num_sequences = static_cast<std::uint32_t>(step.spans.size()),
                      .num_prompt_tokens = step.num_prompt_tokens,
                      .num_answer_tokens = num_tokens - step.num_prompt_tokens,
                      .sent = step.sent,
                      .returned = returned,
                      .timings = result.timings,
                      .num_running = scheduler_.num_running(),
                      .num_waiting = scheduler_.num_waiting(),
                      .num_blocks_used = scheduler_.blocks().num_used()});
}

void EngineLoop::send_steps() {
    const std::uint32_t max_in_flight = std::max(link_.max_in_flight(), 1U);
    while (in_flight_.size() < max_in_flight) {
        const auto num_free = max_in_flight - static_cast<std::uint32_t>(in_flight_.size());
        std::optional<ScheduledStep> step = scheduler_.next_step(max_in_flight, num_free);
        if (!step && !probes_.empty()) {
            step = scheduler_.probe_step();
        }
        if (!step) {
            refused_since_.reset();
            return;
        }
        if (!send(std::move(*step))) {
            give_up_on_refusing_link();
            return;
        }
    }
}

bool EngineLoop::send(ScheduledStep step) {
    StepInFlight in_flight;
    in_flight.step = step.plan.step = StepId{next_step_};
    in_flight.num_rows = num_rows(step.plan);
    in_flight.num_kept_rows = static_cast<std::uint32_t>(step.plan.kept_rows.size());
    for (const ScheduledSpan& span : step.spans) {
        in_flight.num_prompt_tokens +=
            std::min(span.num_tokens, span.sequence->num_unscheduled_prompt_tokens());
    }
    in_flight.spans = step.spans;
    in_flight.sent = Clock::now();
    step.plan.epoch = *epoch_;
    if (!link_.send({std::move(step.plan), std::move(step.inputs), {}})) {
        return false;
    }
    refused_since_.reset();
    ++next_step_;
    ++stats_.steps;
    scheduler_.commit(in_flight.spans);
    in_flight.probes = std::exchange(probes_, {});
    in_flight_.push_back(std::move(in_flight));
    return true;
}

// The chain may be going down, which its news will say, or be draining what was sent before. One
// that does neither must not leave clients waiting for ever.
void EngineLoop::give_up_on_refusing_link() {
    const Clock::time_point now = Clock::now();
    refused_since_ = refused_since_.value_or(now);
    if (now - *refused_since_ >= kRefusalLimit) {
        cancel_steps_in_flight();
        end_everything(failure(ErrorCode::kUnavailable, "the chain takes no more steps"));
    }
}

void EngineLoop::answer_probes(std::vector<std::promise<bool>>& probes, bool whole) {
    for (std::promise<bool>& probe : probes) {
        probe.set_value(whole);
    }
    probes.clear();
}

EngineStats EngineLoop::stats(std::chrono::nanoseconds busy) {
    stats_.busy_ms += milliseconds(busy);
    stats_.schedule_ms_per_step =
        stats_.steps == 0 ? 0.0 : stats_.busy_ms / static_cast<double>(stats_.steps);
    stats_.running = scheduler_.num_running();
    stats_.waiting = scheduler_.num_waiting();
    stats_.preemptions = scheduler_.num_preemptions();
    stats_.reused_tokens = scheduler_.num_reused_tokens();
    stats_.blocks_used = scheduler_.blocks().num_used();
    stats_.blocks_cached = scheduler_.blocks().num_cached();
    stats_.blocks_total = scheduler_.blocks().num_total();
    return stats_;
}

}  // namespace shardline
