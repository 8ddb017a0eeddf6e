#include "engine/sequence.hpp"

#include <algorithm>
#include <utility>

namespace shardline {

Sequence::Sequence(SequenceId sequence_id, Request from, std::uint32_t max_context)
    : id(sequence_id),
      request(std::move(from)),
      tokens(std::move(request.prompt)),
      num_prompt_tokens(static_cast<std::uint32_t>(tokens.size())),
      max_answer_tokens(std::min(request.max_tokens, max_context - num_prompt_tokens)),
      last_event(request.submitted) {}

bool Sequence::cancelled() const {
    const auto left = [](const RequestHandle& handle) {
        return handle.cancelled.load(std::memory_order_relaxed);
    };
    return left(*request.handle) &&
           std::all_of(request.forks.begin(), request.forks.end(),
                       [&](const Fork& fork) { return left(*fork.handle); });
}

bool Sequence::stops_at(std::int64_t token) const {
    return std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
           request.stop_tokens.end();
}

std::span<const std::int64_t> Sequence::prompt() const {
    return std::span(tokens).first(num_prompt_tokens);
}

std::span<const std::int64_t> Sequence::answer() const {
    return std::span(tokens).subspan(num_prompt_tokens);
}

}  // namespace shardline
