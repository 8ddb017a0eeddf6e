#include "transport/worker_host.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/platform.hpp"
#include "model/fingerprint.hpp"
#include "model/model_paths.hpp"
#include "transport/protocol.hpp"
#include "transport/stage_run.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// How long a loaded stage waits for the next epoch before its memory is given back.
constexpr std::chrono::seconds kKeepStage{60};

// A coordinator that restarts comes back before it is noticed that the old one is gone, and then
// before the streams of the old one have all ended.
constexpr std::chrono::milliseconds kHolderGonePatience{500};
constexpr std::chrono::milliseconds kSessionEndPatience{3000};

bool same_spec(const StageSpec& one, const StageSpec& other) {
    return one.model_name == other.model_name && one.fingerprint == other.fingerprint &&
           one.range == other.range && one.numeric == other.numeric && one.device == other.device &&
           one.num_threads == other.num_threads && one.num_blocks == other.num_blocks &&
           one.max_rows == other.max_rows && one.max_context == other.max_context &&
           one.keeps_rows == other.keeps_rows;
}

bool holds(const fs::path& directory, const ModelFingerprint& model) {
    std::error_code failure;
    const fs::path bin = directory / kModelBinName;
    const std::uintmax_t bytes = fs::file_size(bin, failure);
    const fs::path xml = directory / kModelXmlName;
    if (failure || bytes != model.bin_bytes || !fs::is_regular_file(xml, failure)) {
        return false;
    }
    return fingerprint_model(read_text_file(xml, kMaxModelXmlBytes), bin) == model;
}

Error busy(const SessionOwner& owner) {
    return {ErrorCode::kUnavailable,
            fmt::format("busy with the coordinator {} ({})", owner.node, owner.peer)};
}

}  // namespace

struct WorkerHost::Resident {
    StageSpec spec;
    std::shared_ptr<StageExecutor> executor;
    LoadedStage loaded;
    StagePlace place;
};

WorkerHost::WorkerHost(WorkerOptions options, StageLoader loader, StageSizer sizer)
    : options_(std::move(options)),
      loader_(std::move(loader)),
      sizer_(std::move(sizer)),
      housekeeping_([this](const std::stop_token& stopping) { drop_idle_stage(stopping); }) {}

WorkerHost::~WorkerHost() = default;

void WorkerHost::make_way(const PeerHello& hello) {
    std::shared_ptr<WorkerSession> holder;
    {
        std::unique_lock lock(mutex_);
        holder = session_;
        if (!holder) {
            return;
        }
        const SessionOwner& owner = holder->owner();
        const bool newer = owner.id == hello.session && owner.epoch < hello.epoch;
        if (!newer && !holder->ended() &&
            !changed_.wait_for(lock, kHolderGonePatience, [&] { return session_ != holder; })) {
            throw busy(owner);
        }
    }
    holder->end();
    if (!holder->wait_until_free(kSessionEndPatience)) {
        throw busy(holder->owner());
    }
    release(holder);
}

std::shared_ptr<WorkerSession> WorkerHost::claim(const PeerHello& hello, const std::string& peer) {
    if (hello.session.empty()) {
        throw Error(ErrorCode::kCorrupt, "a coordinator without an identity");
    }
    make_way(hello);
    std::lock_guard lock(mutex_);
    if (shutting_down_) {
        throw Error(ErrorCode::kUnavailable, "shutting down");
    }
    if (session_) {
        throw busy(session_->owner());
    }
    session_ =
        std::make_shared<WorkerSession>(SessionOwner{hello.node, hello.session, hello.epoch, peer});
    room_logger("transport")
        ->info("serving the coordinator {} ({}), epoch {}", hello.node, peer,
               to_number(hello.epoch));
    return session_;
}

void WorkerHost::release(const std::shared_ptr<WorkerSession>& session) noexcept {
    session->end();
    session->wait_until_free(kSessionEndPatience);
    std::lock_guard lock(mutex_);
    if (session_ == session && !session->occupied()) {
        session_.reset();
        released_at_ = std::chrono::steady_clock::now();
        changed_.notify_all();
        room_logger("transport")->info("free: the coordinator {} is gone", session->owner().node);
    }
}

std::shared_ptr<WorkerSession> WorkerHost::join(const PeerHello& hello) const {
    std::lock_guard lock(mutex_);
    if (!session_ || session_->ended()) {
        throw Error(ErrorCode::kUnavailable, "no coordinator holds this worker");
    }
    const SessionOwner& owner = session_->owner();
    if (owner.id != hello.session) {
        throw busy(owner);
    }
    if (owner.epoch != hello.epoch) {
        throw Error(ErrorCode::kUnavailable,
                    fmt::format("epoch {} is stale, the current one is {}", to_number(hello.epoch),
                                to_number(owner.epoch)));
    }
    return session_;
}

bool WorkerHost::holds_model(const ModelFingerprint& model) const {
    return !options_.model_directory.empty() && holds(options_.model_directory, model);
}

fs::path WorkerHost::provide_model(const StageSpec& spec, const PieceSupplier& supplier,
                                   const LoadProgress& progress, LoadedStage& loaded) const {
    if (holds_model(spec.fingerprint)) {
        check_memory(options_.model_directory, spec, loaded);
        return options_.model_directory;
    }
    if (options_.store_directory.empty()) {
        throw Error(ErrorCode::kNotFound,
                    fmt::format("'{}' does not hold the model '{}' and has no place to keep one; "
                                "start it with --model or --store",
                                name(), spec.model_name));
    }
    return fetch_model(
        options_.store_directory, spec, supplier,
        [&](const fs::path& directory) { check_memory(directory, spec, loaded); }, progress);
}

StageSpec WorkerHost::completed(StageSpec spec) const {
    if (spec.device.empty()) {
        spec.device = options_.device;
    }
    if (spec.num_threads == 0) {
        spec.num_threads = options_.num_threads;
    }
    return spec;
}

void WorkerHost::check_memory(const fs::path& model_directory, const StageSpec& spec,
                              LoadedStage& loaded) const {
    if (!sizer_) {
        return;
    }
    const StageFootprint footprint = sizer_(model_directory, spec);
    loaded.weights_bytes = footprint.weights_bytes;
    loaded.kv_pool_bytes = footprint.kv_bytes_per_block * spec.num_blocks;
    const std::uint64_t needed = loaded.weights_bytes + loaded.kv_pool_bytes +
                                 footprint.activation_bytes + footprint.reserve_bytes;
    const std::uint64_t available = available_memory_bytes();
    const bool limited = options_.memory_bytes != 0 && options_.memory_bytes < available;
    const std::uint64_t limit = limited ? options_.memory_bytes : available;
    if (needed > limit) {
        throw Error(ErrorCode::kResourceExhausted,
                    fmt::format("'{}' cannot hold {}: it needs {} bytes ({} of weights, {} for {} "
                                "KV blocks) and {} {}",
                                name(), to_string(spec.range), needed, loaded.weights_bytes,
                                loaded.kv_pool_bytes, spec.num_blocks, limit,
                                limited ? "are allowed" : "are free"));
    }
}

LoadedStage WorkerHost::load(const std::shared_ptr<WorkerSession>& session, const StageSpec& spec,
                             const StagePlace& place, const PieceSupplier& supplier,
                             const std::function<void()>& stop, const LoadProgress& progress) {
    const Occupancy occupancy =
        session->occupy(fmt::format("loading {}", to_string(spec.range)), stop);
    const StageSpec wanted = completed(spec);
    {
        std::lock_guard lock(mutex_);
        if (resident_ && same_spec(resident_->spec, wanted)) {
            resident_->place = place;
            resident_->loaded.reused = true;
            resident_->loaded.resident_bytes = process_memory(own_pid()).anonymous_bytes;
            return resident_->loaded;
        }
        resident_.reset();  // before the next one takes its memory
    }
    auto fresh = std::make_unique<Resident>();
    fresh->spec = wanted;
    fresh->place = place;
    const fs::path model_directory = provide_model(wanted, supplier, progress, fresh->loaded);
    fresh->executor = loader_(wanted, model_directory, progress);
    fresh->loaded.effective = fresh->executor->effective_settings();
    fresh->loaded.resident_bytes = process_memory(own_pid()).anonymous_bytes;
    std::lock_guard lock(mutex_);
    resident_ = std::move(fresh);
    return resident_->loaded;
}

void WorkerHost::unload(const std::shared_ptr<WorkerSession>& session) {
    const Occupancy occupancy = session->occupy("unloading", {});
    std::lock_guard lock(mutex_);
    resident_.reset();
}

std::unique_ptr<StageRun> WorkerHost::start_stage(const std::shared_ptr<WorkerSession>& session,
                                                  const std::function<void()>& stop) {
    Occupancy occupancy = session->occupy("serving", stop);
    std::shared_ptr<StageExecutor> executor;
    StageRun::Place place;
    {
        std::lock_guard lock(mutex_);
        if (!resident_) {
            throw Error(ErrorCode::kUnavailable, "no stage is loaded");
        }
        executor = resident_->executor;
        place.stage = resident_->place.stage;
        place.name = fmt::format("{} on {}", to_string(resident_->spec.range), name());
        place.downstream_address = resident_->place.downstream_address;
        place.downstream_timeout = kOpenHopTimeout * resident_->place.stages_after;
    }
    const SessionOwner& owner = session->owner();
    const PeerHello hello{name(), owner.id, owner.epoch};
    return std::make_unique<StageRun>(session, std::move(occupancy), std::move(executor), place,
                                      options_.credentials, hello);
}

std::string WorkerHost::activity() const {
    std::lock_guard lock(mutex_);
    if (!session_) {
        return resident_ ? fmt::format("idle, keeps {}", to_string(resident_->spec.range)) : "idle";
    }
    std::string activity = session_->activity();
    return fmt::format("{} for {}", activity.empty() ? "held" : activity, session_->owner().node);
}

void WorkerHost::begin_shutdown() {
    std::shared_ptr<WorkerSession> session;
    {
        std::lock_guard lock(mutex_);
        shutting_down_ = true;
        session = session_;
    }
    if (session) {
        session->report_trouble({"shutting down", false});
    }
}

bool WorkerHost::shutting_down() const {
    std::lock_guard lock(mutex_);
    return shutting_down_;
}

void WorkerHost::drop_idle_stage(const std::stop_token& stopping) {
    std::unique_lock lock(mutex_);
    while (!stopping.stop_requested()) {
        changed_.wait_for(lock, stopping, std::chrono::seconds(1), [] { return false; });
        if (session_ && session_->ended() && !session_->occupied()) {
            session_.reset();  // its last step outlived its streams
            released_at_ = std::chrono::steady_clock::now();
            changed_.notify_all();
        }
        const auto idle = std::chrono::steady_clock::now() - released_at_;
        if (resident_ && !session_ && idle > kKeepStage) {
            room_logger("transport")
                ->info("giving back the memory of {}", to_string(resident_->spec.range));
            resident_.reset();
        }
    }
}

}  // namespace shardline
