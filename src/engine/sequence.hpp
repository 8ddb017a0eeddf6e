#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "engine/block_manager.hpp"
#include "engine/request.hpp"

namespace shardline {

enum class SequenceStatus {
    kWaiting,   // holds no blocks; one that was preempted may have steps in flight
    kRunning,   // has blocks for all of its tokens but perhaps the last
    kFinished,  // the client has its finish event; may have steps in flight yet
};

// One token stream and how far it has come.
//
//     tokens   prompt ............ | answer ......
//              scheduled ........................| not yet
//
// Owned by the scheduler, touched by the engine's thread only.
struct Sequence {
    // `max_context` counts prompt and answer; the answer is cut to what is left of it.
    Sequence(SequenceId sequence_id, Request from, std::uint32_t max_context);

    SequenceId id;
    Request request;  // its prompt has moved to `tokens`
    std::vector<std::int64_t> tokens;
    std::uint32_t num_prompt_tokens;
    std::uint32_t max_answer_tokens;
    std::uint32_t num_scheduled_tokens = 0;  // computed or in flight
    std::uint32_t num_served_tokens = 0;     // the most that was ever computed or in flight
    std::uint32_t num_steps_in_flight = 0;
    SequenceStatus status = SequenceStatus::kWaiting;
    std::chrono::steady_clock::time_point last_event;  // submission, then every token
    SequenceBlocks kv;

    std::uint32_t num_tokens() const { return static_cast<std::uint32_t>(tokens.size()); }
    std::uint32_t num_unscheduled() const { return num_tokens() - num_scheduled_tokens; }
    std::uint32_t num_answer_tokens() const { return num_tokens() - num_prompt_tokens; }

    std::uint32_t num_unscheduled_prompt_tokens() const {
        return num_prompt_tokens - std::min(num_prompt_tokens, num_scheduled_tokens);
    }

    bool cancelled() const;  // with those that are still to fork from it
    bool stops_at(std::int64_t token) const;
    std::span<const std::int64_t> prompt() const;
    std::span<const std::int64_t> answer() const;
};

}  // namespace shardline
