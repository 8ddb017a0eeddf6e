#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "security/credentials.hpp"
#include "step/step.hpp"
#include "transport/wire_spec.hpp"

namespace shardline {

// The upstream end of one hop: the coordinator's to the first worker, a worker's to the next one.
// Owns the connection and two threads: one writes, so that neither the engine nor a stage ever
// waits for the network, and one waits for the end of the stream.
class StepSender final {
public:
    // Called once, from a thread of the sender, when the open stream ends without close().
    using OnBroken = std::function<void(std::string reason)>;

    // Dials, says hello and returns when the worker has answered, which it does when the rest of
    // the chain stands. Throws Error naming the address. `on_broken` must not end this object.
    StepSender(const std::string& address, const Credentials& credentials, const PeerHello& hello,
               std::chrono::milliseconds timeout, OnBroken on_broken);
    ~StepSender();  // closes

    // Both from any thread; false when the stream is closed or kMaxStepsInFlight steps wait.
    // Cancels overtake the steps that wait.
    bool push(Step step);
    bool cancel(Epoch epoch, StepId step);

    // What waits is dropped.
    void close();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace shardline
