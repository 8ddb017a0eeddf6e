#include "cli/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "cli/submission.hpp"
#include "text/token_text.hpp"

namespace shardline {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(100);

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string finish_name(const FinishEvent& finish) {
    throw_if_failed(finish);
    return finish.reason == FinishReason::kStop     ? "stop"
           : finish.reason == FinishReason::kLength ? "length"
                                                    : "cancelled";
}

}  // namespace

std::uint32_t fitting_max_tokens(const Coordinator& coordinator, std::size_t prompt_tokens,
                                 std::uint32_t wanted) {
    const std::uint32_t context = coordinator.chain().max_context();
    if (prompt_tokens >= context) {
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("the prompt has {} tokens, the context holds {}", prompt_tokens, context));
    }
    return std::min(wanted, context - static_cast<std::uint32_t>(prompt_tokens));
}

Generation generate(Coordinator& coordinator, std::vector<std::int64_t> prompt,
                    const GenerationOptions& options,
                    const std::function<void(const std::string&)>& on_text,
                    const std::function<bool()>& stopped) {
    Generation generation;
    generation.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
    const auto handle = std::make_shared<RequestHandle>(options.max_tokens);
    TokenText text(coordinator.tokenizer(), {});
    const auto emit = [&](const std::string& piece) {
        generation.text += piece;
        on_text(piece);
    };
    const auto start = Clock::now();
    submit_or_throw(coordinator.engine(),
                    {.id = RequestId{1},
                     .prompt = std::move(prompt),
                     .max_tokens = options.max_tokens,
                     .stop_tokens = options.ignore_eos ? std::vector<std::int64_t>{}
                                                       : coordinator.model_info().eos_token_ids,
                     .sampling = options.sampling,
                     .handle = handle});
    while (true) {
        const auto event = handle->events.pop_for(kPoll);
        if (stopped()) {
            handle->cancelled = true;
            coordinator.engine().cancel_soon();
        }
        if (event.has_value() && event->token.has_value()) {
            if (generation.token_ids.empty()) {
                generation.first_token_ms = ms_since(start);
            }
            generation.token_ids.push_back(event->token->token);
            emit(text.push(event->token->token));
        }
        if (event.has_value() && event->finish.has_value()) {
            emit(text.finish());
            generation.finish_reason = finish_name(*event->finish);
            generation.total_ms = ms_since(start);
            return generation;
        }
    }
}

}  // namespace shardline
