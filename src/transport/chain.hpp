#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "step/step.hpp"

namespace shardline {

// What comes out of a chain. Called one at a time, from threads of the chain, never from inside
// send() or cancel(). A callback hands the value on and returns at once; it never calls close().
struct ChainCallbacks {
    // Exactly once for every step that send() accepted, in any order, unless on_down comes first.
    std::function<void(StepResult result)> on_result;

    // At most once, and the last call: the steps in flight are lost. The reason names the worker.
    std::function<void(std::string reason)> on_down;
};

// A chain of stages of one epoch, from its first to its last: activations in, activations of the
// last stage out. GrpcChain runs it over the network, LocalChain in this process.
// send() and cancel() belong to one thread, the engine's; close() to whoever owns the chain.
class Chain {
public:
    virtual ~Chain() = default;

    // Takes the step, or refuses (false) when the chain is down or closed, the step is of another
    // epoch, or kMaxStepsInFlight are in flight. Never waits for a stage or the network.
    virtual bool send(Step step) = 0;

    // Asks every stage to skip the step if it has not begun it; its result comes either way.
    virtual void cancel(StepId step) = 0;

    virtual std::uint32_t num_stages() const = 0;

    // Ends everything; no callback comes after it returns. May be called more than once, also
    // while load() of a GrpcChain runs, which then throws.
    virtual void close() = 0;
};

}  // namespace shardline
