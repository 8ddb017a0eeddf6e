#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "security/credentials.hpp"
#include "stage/stage_loader.hpp"
#include "step/step.hpp"
#include "transport/grpc_chain.hpp"
#include "transport/wire_spec.hpp"
#include "transport/worker_client.hpp"

namespace shardline {

// What a coordinator hears from one worker; called from threads of the link.
struct WorkerLinkCallbacks {
    std::function<void(StepResult)> on_result;
    // Without the worker's name; may repeat. `downstream`: it is the next worker that is lost.
    std::function<void(std::string reason, bool downstream)> on_lost;
};

// The coordinator's connections to one worker, but for the step stream: descriptions, the claim
// with its heartbeats, loading, results. Owns their threads. Methods are called by one thread, but
// cancel() and the getters by any. Internal to the room.
class WorkerLink final {
public:
    WorkerLink(std::string address, Credentials credentials, PeerHello hello,
               WorkerLinkCallbacks callbacks);
    ~WorkerLink();  // closes

    // Each throws Error naming the worker; see describe_worker() for the cases.
    WorkerDescription describe(std::chrono::milliseconds timeout,
                               const std::optional<ModelFingerprint>& model);
    void claim(std::chrono::milliseconds timeout);

    struct LoadOrder {
        StageSpec spec;
        std::uint32_t stage = 0;
        std::string downstream_address;
        std::uint32_t stages_after = 0;
        std::filesystem::path model_directory;  // for what the worker lacks
    };
    LoadedStage load(const LoadOrder& order, std::chrono::milliseconds timeout,
                     const LoadProgress& progress);
    void open_results(std::chrono::milliseconds timeout, std::uint32_t max_rows);

    // "worker kitchen (10.0.0.5:7411)", without the name before describe().
    std::string who() const;

    // Since something was last heard; zero before claim().
    std::chrono::milliseconds silence() const;

    // Steps that came and have not left again, as of the last heartbeat.
    std::uint64_t steps_inside() const;

    void cancel();  // ends all streams without waiting
    void close();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace shardline
