#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "security/credentials.hpp"
#include "stage/stage_worker.hpp"
#include "step/stage_executor.hpp"
#include "transport/step_sender.hpp"
#include "transport/worker_session.hpp"

namespace shardline {

namespace wire {
class StepFrame;
}  // namespace wire

// A stage at work for one step stream: takes frames, runs steps, hands them downstream or, as the
// last stage, to the session's results. Owns the stage's thread and the connection downstream;
// the executor is only lent to it and must not be lent twice.
class StageRun final {
public:
    struct Place {
        std::uint32_t stage = 0;
        std::string name;                // as in messages: "15-30 on kitchen"
        std::string downstream_address;  // empty for the last
        std::chrono::milliseconds downstream_timeout{0};
    };

    // Dials downstream; throws Error when that end of the chain does not come up. Occupancy is
    // given back when the run ends.
    StageRun(std::shared_ptr<WorkerSession> session, Occupancy occupancy,
             std::shared_ptr<StageExecutor> executor, const Place& place,
             const Credentials& credentials, const PeerHello& hello);

    // A frame other than the hello. Frames of another epoch are dropped; throws Error when the
    // frame is refused, after which the stream has to end.
    void take(wire::StepFrame& frame);

private:
    void step_ended(StepResult result);
    void step_done(Step step);

    const std::shared_ptr<WorkerSession> session_;
    const Occupancy occupancy_;
    const Epoch epoch_;
    const StepLimits limits_;
    const std::size_t max_frame_bytes_;
    std::unique_ptr<StepSender> downstream_;  // null for the last
    std::unique_ptr<StageWorker> worker_;     // ends before what it hands to
};

}  // namespace shardline
