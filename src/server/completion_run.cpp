#include "server/completion_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

namespace shardline {
namespace {

// Ids only need to differ within the process; 0 is nobody's.
RequestId next_request_id() {
    static std::atomic<std::uint64_t> last{0};
    return RequestId{++last};
}

// Choices of one prompt must differ, reproducibly: choice 0 keeps the seed as it is.
std::uint64_t seed_of_choice(std::uint64_t seed, std::uint64_t index) {
    constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15ULL;
    return seed + index * kGoldenRatio;
}

ApiError refusal(const SubmitResult& result) {
    switch (result.status) {
        case SubmitStatus::kChainDown: return chain_down(result.reason);
        case SubmitStatus::kTooLong:
            return bad_request(result.reason, std::nullopt, "context_length_exceeded");
        case SubmitStatus::kQueueFull:
        case SubmitStatus::kAccepted: break;
    }
    return queue_full(result.reason);
}

bool is_empty(const ChoiceDelta& delta) {
    return delta.text.empty() && delta.tokens.empty() && !delta.finish && !delta.error;
}

}  // namespace

CompletionRun::CompletionRun(Engine& engine, const Tokenizer& tokenizer, RunSpec spec)
    : engine_(engine), tokenizer_(tokenizer), spec_(std::move(spec)) {}

CompletionRun::~CompletionRun() {
    cancel_open();
}

std::optional<ApiError> CompletionRun::submit() {
    submitted_ = Clock::now();
    for (const auto& prompt : spec_.prompts) {
        const std::uint32_t room = spec_.context_length - static_cast<std::uint32_t>(prompt.size());
        const std::uint32_t max_tokens = std::min(spec_.max_tokens.value_or(room), room);
        Request request;
        request.id = next_request_id();
        request.owner = spec_.caller.owner;
        request.client = spec_.caller.client;
        request.prompt = prompt;
        request.max_tokens = max_tokens;
        request.stop_tokens = spec_.stop_tokens;
        for (std::uint32_t i = 0; i < spec_.num_choices; ++i) {
            add_choice(request, i);
        }
        const SubmitResult result = engine_.submit(std::move(request));
        if (result.status != SubmitStatus::kAccepted) {
            choices_.resize(choices_.size() - spec_.num_choices);
            cancel_open();
            return refusal(result);
        }
        num_open_ += spec_.num_choices;
    }
    return std::nullopt;
}

void CompletionRun::add_choice(Request& request, std::uint32_t index) {
    Choice choice;
    choice.handle = std::make_shared<RequestHandle>(request.max_tokens);
    choice.text = std::make_unique<TokenText>(tokenizer_, spec_.stop);
    SamplingParams sampling = spec_.sampling;
    sampling.seed = seed_of_choice(spec_.sampling.seed, index);
    if (index == 0) {
        request.sampling = std::move(sampling);
        request.handle = choice.handle;
    } else {
        request.forks.push_back({std::move(sampling), choice.handle});
    }
    choices_.push_back(std::move(choice));
}

std::vector<ChoiceDelta> CompletionRun::next(std::chrono::milliseconds timeout) {
    std::vector<ChoiceDelta> deltas;
    for (std::uint32_t i = 0; i < choices_.size(); ++i) {
        take_events(i, deltas);
    }
    const auto first_open = std::find_if(choices_.begin(), choices_.end(),
                                         [](const Choice& choice) { return choice.open; });
    if (!deltas.empty() || first_open == choices_.end()) {
        return deltas;
    }
    // Choices run side by side, so the others' tokens come with the first one's; a short wait
    // covers the case that the first one still queues.
    constexpr std::chrono::milliseconds kWaitAmongSeveral{10};
    const auto wait = num_open_ == 1 ? timeout : std::min(timeout, kWaitAmongSeveral);
    if (auto event = first_open->handle->events.pop_for(wait)) {
        const auto index = static_cast<std::uint32_t>(first_open - choices_.begin());
        ChoiceDelta delta;
        delta.choice = index;
        absorb(index, std::move(*event), delta);
        if (!is_empty(delta)) {
            deltas.push_back(std::move(delta));
        }
    }
    return deltas;
}

void CompletionRun::take_events(std::uint32_t index, std::vector<ChoiceDelta>& deltas) {
    ChoiceDelta delta;
    delta.choice = index;
    while (choices_[index].open) {
        auto event = choices_[index].handle->events.try_pop();
        if (!event) {
            break;
        }
        absorb(index, std::move(*event), delta);
    }
    if (!is_empty(delta)) {
        deltas.push_back(std::move(delta));
    }
}

void CompletionRun::absorb(std::uint32_t index, RequestEvent event, ChoiceDelta& delta) {
    Choice& choice = choices_[index];
    if (event.token) {
        absorb_token(choice, *event.token, delta);
    }
    if (!event.finish || !choice.open) {
        return;
    }
    switch (event.finish->reason) {
        case FinishReason::kStop:
        case FinishReason::kLength: {
            const std::string rest = choice.text->finish();
            choice.emitted_bytes += rest.size();
            delta.text += rest;
            // Broken bytes at the very end may yet complete a stop string.
            release_records(choice, !choice.text->stopped(), delta);
            delta.finish = choice.text->stopped() ? FinishReason::kStop : event.finish->reason;
            break;
        }
        case FinishReason::kCancelled:
            // Nobody but the engine's own shutdown cancels a run whose thread still listens.
            delta.error = chain_down("the server is shutting down");
            break;
        case FinishReason::kError:
            delta.error = to_api_error(event.finish->error_code, event.finish->error);
            break;
    }
    close(choice);
}

void CompletionRun::absorb_token(Choice& choice, const TokenEvent& token, ChoiceDelta& delta) {
    last_token_ = Clock::now();
    if (!first_token_) {
        first_token_ = last_token_;
    }
    ++completion_tokens_;
    if (spec_.sampling.logprobs) {
        choice.held.push_back(make_record(token));
        choice.token_bytes += choice.held.back().bytes.size();
        choice.held_end.push_back(choice.token_bytes);
    }
    const std::string text = choice.text->push(token.token);
    choice.emitted_bytes += text.size();
    delta.text += text;
    if (choice.text->stopped()) {
        release_records(choice, false, delta);
        delta.finish = FinishReason::kStop;
        close(choice);
    } else if (!text.empty()) {
        release_records(choice, false, delta);
    }
}

// A record leaves with the text its token began, so that a stream's records and text agree and a
// stop string takes the records of its tokens with it.
void CompletionRun::release_records(Choice& choice, bool all, ChoiceDelta& delta) {
    std::size_t count = 0;
    while (count < choice.held.size()) {
        const std::size_t begin = choice.held_end[count] - choice.held[count].bytes.size();
        if (!all && begin >= choice.emitted_bytes) {
            break;
        }
        delta.tokens.push_back(std::move(choice.held[count]));
        ++count;
    }
    choice.held.erase(choice.held.begin(),
                      choice.held.begin() + static_cast<std::ptrdiff_t>(count));
    choice.held_end.erase(choice.held_end.begin(),
                          choice.held_end.begin() + static_cast<std::ptrdiff_t>(count));
}

void CompletionRun::close(Choice& choice) {
    choice.open = false;
    --num_open_;
    if (!choice.handle->cancelled.exchange(true)) {
        engine_.cancel_soon();
    }
}

void CompletionRun::cancel_open() {
    bool any = false;
    for (Choice& choice : choices_) {
        if (choice.open) {
            choice.open = false;
            choice.handle->cancelled = true;
            any = true;
        }
    }
    num_open_ = 0;
    if (any) {
        engine_.cancel_soon();
    }
}

TokenRecord CompletionRun::make_record(const TokenEvent& token) const {
    TokenRecord record;
    record.bytes = tokenizer_.token_bytes(token.token);
    record.logprob = token.logprob.value_or(0.0F);
    for (const TokenLogprob& other : token.top_logprobs) {
        record.top.emplace_back(tokenizer_.token_bytes(other.token), other.logprob);
    }
    return record;
}

RunUsage CompletionRun::usage() const {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    RunUsage usage;
    for (const auto& prompt : spec_.prompts) {
        usage.prompt_tokens += prompt.size();
    }
    for (std::size_t i = 0; i < choices_.size(); i += spec_.num_choices) {
        usage.reused_tokens += choices_[i].handle->num_reused_tokens;
    }
    usage.completion_tokens = completion_tokens_;
    if (first_token_) {
        usage.prompt_ms = Milliseconds(*first_token_ - submitted_).count();
        usage.predicted_ms = Milliseconds(last_token_ - *first_token_).count();
    }
    return usage;
}

}  // namespace shardline
