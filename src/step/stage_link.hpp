#pragma once

#include <cstdint>
#include <string>

#include "step/step.hpp"

namespace shardline {

// Receives what comes out of a chain. Called from threads of the chain, never from inside
// send() or cancel(); implementations hand the value to a queue and return at once.
class ChainListener {
public:
    virtual ~ChainListener() = default;

    // Once for every step that send() accepted, in any order, unless chain_down comes first.
    virtual void step_done(StepResult result) = 0;

    // The chain can run steps of `epoch`, and of no other, from now on. All KV is empty.
    virtual void chain_up(Epoch epoch) = 0;

    // Steps in flight are lost and no KV survives; chain_up follows when the chain is whole again.
    virtual void chain_down(const std::string& reason) = 0;
};

// The way from the engine to a chain of stages and back: token ids in (one i64 tensor "input_ids"
// of shape [rows]), logits out (one f32 tensor "logits" of shape [kept rows, vocabulary]).
// transport/local_link and transport/grpc_link implement the hops, fleet composes them.
// Thread-safety: one sender thread; cancel() from the same thread.
class StageLink {
public:
    virtual ~StageLink() = default;

    // Takes the step, or refuses (false) when the chain is down, the epoch is not the current one
    // or more than max_in_flight() steps are in flight. Never waits for a stage.
    virtual bool send(Step step) = 0;

    // Asks every stage to skip the step if it has not begun it. A step that began runs on;
    // step_done reports kCancelled or kDone either way.
    virtual void cancel(Epoch epoch, StepId step) = 0;

    // As many steps as keep busy whatever computes layers: the number of stages, those that share a
    // processor counted once.
    virtual std::uint32_t max_in_flight() const = 0;
};

}  // namespace shardline
