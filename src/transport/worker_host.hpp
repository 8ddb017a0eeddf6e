#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "transport/grpc_chain.hpp"
#include "transport/model_fetch.hpp"
#include "transport/wire_spec.hpp"
#include "transport/worker_server.hpp"
#include "transport/worker_session.hpp"

namespace shardline {

class StageRun;

// Where a worker stands in its chain; comes with Load.
struct StagePlace {
    std::uint32_t stage = 0;
    std::string downstream_address;  // empty for the last
    std::uint32_t stages_after = 0;
};

// What a worker has besides its sockets: the one session, the one stage, the rules of who may use
// them when. Thread-safe; every call throws Error, which the streams turn into a status.
//
//     claim ──► load ──► start_stage ──► ... ──► release
//     (Watch)   (Load)   (Steps)                 (Watch ends, however it ends)
//
// A stage stays loaded for kKeepStage after its session, so that the next epoch with the same
// placement starts at once; its KV counts as empty then.
class WorkerHost final {
public:
    WorkerHost(WorkerOptions options, StageLoader loader, StageSizer sizer);
    ~WorkerHost();

    const std::string& name() const { return options_.name; }

    // Refuses with the holder's name while there is one, after a moment in which it may turn out to
    // be gone; an older epoch of the same coordinator is ended instead.
    std::shared_ptr<WorkerSession> claim(const PeerHello& hello, const std::string& peer);
    void release(const std::shared_ptr<WorkerSession>& session) noexcept;

    // The session that the hello belongs to; throws when that is not the current one.
    std::shared_ptr<WorkerSession> join(const PeerHello& hello) const;

    // The supplier is asked for what this host lacks. `stop` makes the caller's stream end early;
    // `progress` may throw to give up.
    LoadedStage load(const std::shared_ptr<WorkerSession>& session, const StageSpec& spec,
                     const StagePlace& place, const PieceSupplier& supplier,
                     const std::function<void()>& stop, const LoadProgress& progress);
    void unload(const std::shared_ptr<WorkerSession>& session);

    // The loaded stage with its connection downstream, ready for steps.
    std::unique_ptr<StageRun> start_stage(const std::shared_ptr<WorkerSession>& session,
                                          const std::function<void()>& stop);

    // All of it; a store holds what stages needed and is not asked.
    bool holds_model(const ModelFingerprint& model) const;
    std::string activity() const;
    const WorkerOptions& options() const { return options_; }

    // Tells the coordinator and lets every stream end.
    void begin_shutdown();
    bool shutting_down() const;

private:
    struct Resident;

    void make_way(const PeerHello& hello);
    std::filesystem::path provide_model(const StageSpec& spec, const PieceSupplier& supplier,
                                        const LoadProgress& progress, LoadedStage& loaded) const;
    StageSpec completed(StageSpec spec) const;
    void check_memory(const std::filesystem::path& model_directory, const StageSpec& spec,
                      LoadedStage& loaded) const;
    void drop_idle_stage(const std::stop_token& stopping);

    const WorkerOptions options_;
    const StageLoader loader_;
    const StageSizer sizer_;
    mutable std::mutex mutex_;
    std::condition_variable_any changed_;
    std::shared_ptr<WorkerSession> session_;  // guarded by mutex_, as all below
    std::unique_ptr<Resident> resident_;
    std::chrono::steady_clock::time_point released_at_;
    bool shutting_down_ = false;
    std::jthread housekeeping_;  // last: starts when all else is there
};

}  // namespace shardline
