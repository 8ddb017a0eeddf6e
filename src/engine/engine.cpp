#include "engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "engine/block_manager.hpp"
#include "engine/engine_loop.hpp"
#include "engine/inbox.hpp"
#include "engine/scheduler.hpp"

namespace shardline {

namespace {

void check_least(const char* field, std::uint32_t value, std::uint32_t least) {
    if (value < least) {
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("engine option {} is {}, must be at least {}", field, value, least));
    }
}

std::uint64_t pool_tokens(const EngineOptions& options) {
    return std::uint64_t{options.num_blocks - 1} * kBlockTokens;
}

// A sequence may be no longer than the pool, even alone. The last token of an answer is never fed
// back and needs no place, hence one more.
EngineOptions checked(EngineOptions options) {
    options.validate();
    const std::uint64_t fits = pool_tokens(options) + 1;
    if (fits < options.max_context) {
        room_logger("engine")->warn("the KV pool holds {} tokens, fewer than the context of {}",
                                    pool_tokens(options), options.max_context);
        options.max_context = static_cast<std::uint32_t>(fits);
    }
    return options;
}

[[noreturn]] void refuse(const std::string& message) {
    throw Error(ErrorCode::kInvalidArgument, message);
}

void check_request(const Request& request, std::uint32_t vocab_size) {
    SHARDLINE_INVARIANT(request.handle != nullptr);
    if (request.prompt.empty()) {
        refuse("the prompt has no tokens, at least one is needed");
    }
    if (request.max_tokens == 0) {
        refuse("max_tokens is 0, must be at least 1");
    }
    for (std::int64_t token : request.prompt) {
        if (token < 0 || token >= std::int64_t{vocab_size}) {
            refuse(
                fmt::format("prompt token {} is outside the vocabulary of {}", token, vocab_size));
        }
    }
    request.sampling.validate(vocab_size);
    for (const Fork& fork : request.forks) {
        SHARDLINE_INVARIANT(fork.handle != nullptr);
        fork.sampling.validate(vocab_size);
    }
}

// Requests and probes that never reached the loop.
void return_mail(Mail& mail, const FinishEvent& finish) {
    for (Request& request : mail.submissions) {
        if (request.handle) {  // else the loop has taken it
            send_finish(request, finish);
        }
    }
    for (std::promise<bool>& probe : mail.probes) {
        probe.set_value(false);
    }
}

}  // namespace

void EngineOptions::validate() const {
    check_least("num_blocks", num_blocks, 2);
    check_least("max_context", max_context, 2);
    check_least("vocab_size", vocab_size, 2);
    check_least("max_step_tokens", max_step_tokens, kLeastStepTokens);
    check_least("max_sequences", max_sequences, 1);
}

struct Engine::State {
    explicit State(const EngineOptions& wanted)
        : options(checked(wanted)),
          context_wanted(wanted.max_context),
          inbox(options.max_sequences + options.max_waiting) {
        stats.blocks_total = options.num_blocks - 1;
    }

    void run(StageLink& link);
    void serve(EngineLoop& loop, Mail& mail);
    void publish(EngineStats fresh);

    const EngineOptions options;
    const std::uint32_t context_wanted;
    Inbox inbox;
    std::mutex stats_mutex;
    EngineStats stats;  // guarded by stats_mutex
    std::thread thread;
};

void Engine::State::publish(EngineStats fresh) {
    std::lock_guard lock(stats_mutex);
    stats = std::move(fresh);
}

void Engine::State::serve(EngineLoop& loop, Mail& mail) {
    while (true) {
        mail = inbox.take(loop.patience());
        if (mail.closed) {
            loop.cancel_steps_in_flight();
            return;
        }
        const auto begin = std::chrono::steady_clock::now();
        loop.handle(mail);
        publish(loop.stats(std::chrono::steady_clock::now() - begin));
    }
}

void Engine::State::run(StageLink& link) {
    EngineLoop loop(options, inbox, link);
    FinishEvent finish{FinishReason::kCancelled, ErrorCode::kInternal, {}};
    Mail mail;
    try {
        serve(loop, mail);
    } catch (const std::exception& error) {
        // Out of memory, or a link that throws: no client may be left waiting.
        finish = {FinishReason::kError, ErrorCode::kInternal,
                  fmt::format("the engine stopped: {}", error.what())};
        room_logger("engine")->error("{}", finish.error);
        inbox.close(finish.error);
    }
    loop.end_everything(finish);
    return_mail(mail, finish);
    mail = inbox.take(std::chrono::milliseconds(0));  // what came before the box was closed
    return_mail(mail, finish);
    publish(loop.stats(std::chrono::nanoseconds(0)));
}

Engine::Engine(const EngineOptions& options) : state_(std::make_unique<State>(options)) {}

Engine::~Engine() {
    stop();
}

void Engine::start(StageLink& link) {
    SHARDLINE_INVARIANT(!state_->thread.joinable());
    state_->thread = std::thread([this, &link] { state_->run(link); });
}

void Engine::stop() {
    state_->inbox.close("the engine is stopped");
    if (state_->thread.joinable()) {
        state_->thread.join();
    }
}

SubmitResult Engine::submit(Request request) {
    const EngineOptions& options = state_->options;
    check_request(request, options.vocab_size);
    if (request.prompt.size() >= options.max_context) {
        const bool pool = options.max_context < state_->context_wanted;
        return {SubmitStatus::kTooLong,
                fmt::format("the prompt has {} tokens, {} of {} with room for an answer",
                            request.prompt.size(),
                            pool ? "the KV pool holds a context" : "the model has a context",
                            options.max_context)};
    }
    request.submitted = std::chrono::steady_clock::now();
    return state_->inbox.submit(std::move(request));
}

void Engine::cancel_soon() {
    state_->inbox.wake_for_cancels();
}

bool Engine::chain_is_up() const {
    return state_->inbox.chain_is_up();
}

std::string Engine::chain_down_reason() const {
    return state_->inbox.chain_down_reason();
}

bool Engine::probe(std::chrono::milliseconds timeout) {
    std::optional<std::future<bool>> answer = state_->inbox.probe();
    return answer && answer->wait_for(timeout) == std::future_status::ready && answer->get();
}

EngineStats Engine::stats() const {
    std::lock_guard lock(state_->stats_mutex);
    return state_->stats;
}

void Engine::step_done(StepResult result) {
    state_->inbox.result(std::move(result));
}

void Engine::chain_up(Epoch epoch) {
    state_->inbox.chain_up(epoch);
}

void Engine::chain_down(const std::string& reason) {
    state_->inbox.chain_down(reason);
}

}  // namespace shardline
