#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bounded_queue.hpp"
#include "base/error.hpp"
#include "base/ids.hpp"
#include "sampling/sampler.hpp"

namespace shardline {

enum class FinishReason { kStop, kLength, kCancelled, kError };

// What the engine says about one request: tokens as they come, then one finish. A stop token that
// is drawn ends the answer and is not an event: it is no text and does not count as usage, which is
// the number of token events.
struct TokenEvent {
    std::int64_t token = 0;
    std::optional<float> logprob;
    std::vector<TokenLogprob> top_logprobs;
};

struct FinishEvent {
    FinishReason reason = FinishReason::kStop;
    ErrorCode error_code = ErrorCode::kInternal;  // only with kError
    std::string error;                            // only with kError
};

struct RequestEvent {
    std::optional<TokenEvent> token;
    std::optional<FinishEvent> finish;
};

// The client's end and the engine's end of one request. Events fit by construction: the capacity
// is max_tokens + 1, so the engine never waits for a slow reader.
// The client pops events from one thread and may cancel from any: set `cancelled`, then call
// Engine::cancel_soon(). Closing `events` cancels as well, at the next token.
class RequestHandle final {
public:
    explicit RequestHandle(std::uint32_t max_tokens) : events(std::size_t{max_tokens} + 1) {}

    BoundedQueue<RequestEvent> events;
    std::atomic<bool> cancelled{false};
    std::atomic<std::uint32_t> num_reused_tokens{0};  // of the prompt; set before any event
};

// A further answer to the same prompt.
struct Fork {
    SamplingParams sampling;
    std::shared_ptr<RequestHandle> handle;
};

// One sequence to generate: at most max_tokens, cut to what the context has left. The shared handle
// outlives whichever end goes first. `forks` become sequences of their own when the prompt has been
// computed, once for all.
struct Request {
    RequestId id{};
    std::uint64_t owner = 0;   // prompts are computed once for requests of one owner, never across
    std::uint64_t client = 0;  // whose turn it is goes by clients
    std::vector<std::int64_t> prompt;
    std::uint32_t max_tokens = 0;
    std::vector<std::int64_t> stop_tokens;  // EOS ids; empty with ignore_eos
    SamplingParams sampling;
    std::shared_ptr<RequestHandle> handle;
    std::vector<Fork> forks{};
    std::chrono::steady_clock::time_point submitted{};  // set by the engine

    std::uint32_t num_answers() const { return 1 + static_cast<std::uint32_t>(forks.size()); }
};

// To the client of the request and of each fork that is still in it.
void send_finish(const Request& request, const FinishEvent& finish);

}  // namespace shardline
