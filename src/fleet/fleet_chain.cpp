#include "fleet/fleet_chain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/platform.hpp"
#include "fleet/chain_run.hpp"
#include "fleet/fleet_plan.hpp"
#include "fleet/local_worker.hpp"
#include "model/model_source.hpp"
#include "stage/stage_loader.hpp"

namespace shardline {

namespace {

constexpr int kLocalFleetDays = 3650;  // as long as the process may run
constexpr auto kFirstRetry = std::chrono::milliseconds(250);
constexpr auto kLastRetry = std::chrono::seconds(4);
constexpr auto kMoment = std::chrono::milliseconds(1);
constexpr auto kLocalWorkerGrace = std::chrono::milliseconds(500);

}  // namespace

void FleetOptions::validate() const {
    if (!workers.empty() && local_workers > 0) {
        throw Error(ErrorCode::kInvalidArgument,
                    "--workers and --local-workers exclude each other");
    }
    if (workers.empty() && local_workers == 0 && keep_layers > 0) {
        throw Error(ErrorCode::kInvalidArgument,
                    "--keep-layers needs workers that take the other layers");
    }
}

struct FleetChain::State {
    State(const FleetOptions& given, const FleetProgress& report)
        : options(given), source(ModelSource::open(given.model_directory)), progress(report) {}

    void prepare_local_workers();
    void ensure_local_workers();
    void load_own_stages();
    std::unique_ptr<ChainRun> make_run();
    void keep();
    void lost(std::string reason);
    bool try_again();

    const FleetOptions options;
    const ModelSource source;
    // Read once: a worker that is replaced later gets what was planned for it.
    const std::uint64_t process_memory = process_memory_bytes(options);
    FleetProgress progress;  // during open() only
    FleetPlan plan;
    Credentials credentials;
    const CoordinatorIdentity identity = make_coordinator_identity();
    std::vector<Credentials> local_credentials;
    std::vector<LocalWorker> local_workers;
    std::vector<std::string> addresses;
    std::unique_ptr<StageExecutor> first;
    std::unique_ptr<StageExecutor> last;
    ChainListener* listener = nullptr;
    std::thread keeper;

    mutable std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t epoch = 0;        // guarded by mutex, as all below
    std::shared_ptr<ChainRun> run;  // shared: the engine thread may be inside send() at a loss
    bool down = false;
    std::string down_reason;
    bool stopping = false;
};

void FleetChain::State::prepare_local_workers() {
    if (options.local_workers == 0) {
        if (options.credentials.has_value()) {
            credentials = *options.credentials;
        }
        addresses = options.workers;
        return;
    }
    const Fleet fleet = make_fleet(kLocalFleetDays);
    credentials = make_node_credentials(fleet, "coordinator", kLocalFleetDays);
    for (std::uint32_t i = 0; i < options.local_workers; ++i) {
        local_credentials.push_back(
            make_node_credentials(fleet, fmt::format("local-{}", i + 1), kLocalFleetDays));
    }
}

// Starts those that are missing, at first all of them.
void FleetChain::State::ensure_local_workers() {
    for (std::size_t i = 0; i < local_credentials.size(); ++i) {
        if (i < local_workers.size() && local_workers[i].process.running()) {
            continue;
        }
        LocalWorker worker = start_local_worker({.model_directory = options.model_directory,
                                                 .name = fmt::format("local-{}", i + 1),
                                                 .device = options.device,
                                                 .memory_bytes = process_memory,
                                                 .num_threads = options.num_threads,
                                                 .log_level = log_level()},
                                                local_credentials[i]);
        if (i < local_workers.size()) {
            local_workers[i] = std::move(worker);
            addresses[i] = local_workers[i].address;
        } else {
            addresses.push_back(worker.address);
            local_workers.push_back(std::move(worker));
        }
    }
}

void FleetChain::State::load_own_stages() {
    const auto load = [&](const StageSpec& spec) {
        return load_stage(options.model_directory, spec, [&](const char* phase, double fraction) {
            progress(fmt::format("this process, {}", to_string(spec.range)), phase, fraction);
        });
    };
    first = load(plan.first);
    if (!plan.last.empty()) {
        last = load(plan.last.front());
    }
}

std::unique_ptr<ChainRun> FleetChain::State::make_run() {
    ChainParts parts{.first = first.get(),
                     .last = last.get(),
                     .hops = {},
                     .model_directory = options.model_directory,
                     .credentials = credentials,
                     .identity = identity};
    for (std::size_t i = 0; i < plan.remote.size(); ++i) {
        parts.hops.push_back({addresses[i], plan.remote[i]});
    }
    Epoch next{};
    {
        std::lock_guard lock(mutex);
        next = Epoch{++epoch};
        down = false;
    }
    const auto report = [this](std::size_t hop, const std::string& phase, double fraction) {
        progress(fmt::format("{}, {}", addresses[hop], to_string(plan.remote[hop].range)), phase,
                 fraction);
    };
    return std::make_unique<ChainRun>(
        next, parts, report,
        ChainCallbacks{
            .on_result = [this](StepResult result) { listener->step_done(std::move(result)); },
            .on_down = [this](std::string reason) { lost(std::move(reason)); }});
}

void FleetChain::State::lost(std::string reason) {
    {
        std::lock_guard lock(mutex);
        if (down) {
            return;
        }
        down = true;
        down_reason = std::move(reason);
    }
    changed.notify_all();
}

// One attempt to have the whole chain again. False: not yet.
bool FleetChain::State::try_again() {
    try {
        ensure_local_workers();
        std::unique_ptr<ChainRun> next = make_run();
        Epoch up{};
        {
            std::lock_guard lock(mutex);
            if (down || stopping) {
                return false;
            }
            run = std::move(next);
            up = Epoch{epoch};
        }
        listener->chain_up(up);
        return true;
    } catch (const Error& error) {
        room_logger("fleet")->warn("chain is still down: {}", error.what());
        // One of ours that runs but does not answer hangs: only a new process helps.
        for (LocalWorker& worker : local_workers) {
            worker.process.terminate(kLocalWorkerGrace);
        }
        return false;
    }
}

// The keeper's thread: waits for a loss, tells the listener, tries until the chain is whole.
void FleetChain::State::keep() {
    std::unique_lock lock(mutex);
    while (true) {
        changed.wait(lock, [&] { return down || stopping; });
        if (stopping) {
            return;
        }
        const std::string reason = down_reason;
        std::shared_ptr<ChainRun> broken = std::exchange(run, nullptr);
        lock.unlock();
        room_logger("fleet")->error("chain is down: {}", reason);
        listener->chain_down(reason);
        // The engine thread may be inside send(); it must not be the one who ends the threads.
        while (broken.use_count() > 1) {
            std::this_thread::sleep_for(kMoment);
        }
        broken.reset();
        auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(kFirstRetry);
        lock.lock();
        while (!stopping) {
            lock.unlock();
            const bool whole = try_again();
            lock.lock();
            if (whole) {
                break;
            }
            changed.wait_for(lock, pause, [&] { return stopping; });
            pause = std::min<std::chrono::milliseconds>(pause * 2, kLastRetry);
        }
    }
}

FleetChain::FleetChain(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<FleetChain> FleetChain::open(const FleetOptions& options,
                                             const FleetProgress& progress) {
    options.validate();
    auto state = std::make_unique<State>(options, progress);
    state->prepare_local_workers();
    state->ensure_local_workers();
    state->plan =
        plan_fleet(state->source, options, describe_workers(state->addresses, state->credentials),
                   state->process_memory);
    state->load_own_stages();
    state->run = state->make_run();
    state->progress = [](const std::string&, const std::string&, double) {};
    return std::unique_ptr<FleetChain>(new FleetChain(std::move(state)));
}

FleetChain::~FleetChain() {
    stop();
}

void FleetChain::start(ChainListener& listener) {
    state_->listener = &listener;
    listener.chain_up(Epoch{state_->epoch});
    state_->keeper = std::thread([this] { state_->keep(); });
}

void FleetChain::stop() {
    {
        std::lock_guard lock(state_->mutex);
        state_->stopping = true;
    }
    state_->changed.notify_all();
    if (state_->keeper.joinable()) {
        state_->keeper.join();
    }
    std::shared_ptr<ChainRun> run;
    {
        std::lock_guard lock(state_->mutex);
        run = std::exchange(state_->run, nullptr);
    }
    run.reset();
    state_->local_workers.clear();
}

const ModelInfo& FleetChain::model_info() const {
    return state_->source.info();
}
std::uint32_t FleetChain::num_blocks() const {
    return state_->plan.num_blocks;
}
std::uint32_t FleetChain::max_context() const {
    return state_->plan.max_context;
}

std::vector<StageDescription> FleetChain::stages() const {
    std::vector<StageDescription> stages;
    const auto add = [&](const std::string& where, int pid, const StageSpec& spec) {
        stages.push_back({.where = where, .pid = pid, .spec = spec});
    };
    add("this process", own_pid(), state_->plan.first);
    for (std::size_t i = 0; i < state_->plan.remote.size(); ++i) {
        if (i < state_->local_workers.size()) {
            const int pid = state_->local_workers[i].process.pid();
            add(fmt::format("local worker {} (pid {})", i + 1, pid), pid, state_->plan.remote[i]);
        } else {
            add(state_->addresses[i], 0, state_->plan.remote[i]);
        }
    }
    for (const StageSpec& spec : state_->plan.last) {
        add("this process", own_pid(), spec);
    }
    return stages;
}

bool FleetChain::send(Step step) {
    std::shared_ptr<ChainRun> run;
    {
        std::lock_guard lock(state_->mutex);
        if (state_->down || state_->run == nullptr) {
            return false;
        }
        run = state_->run;
    }
    return run->send(std::move(step), max_in_flight());
}

void FleetChain::cancel(Epoch epoch, StepId step) {
    std::shared_ptr<ChainRun> run;
    {
        std::lock_guard lock(state_->mutex);
        if (state_->run == nullptr || epoch != Epoch{state_->epoch}) {
            return;
        }
        run = state_->run;
    }
    run->cancel(step);
}

std::uint32_t FleetChain::max_in_flight() const {
    return state_->plan.num_processors;
}

}  // namespace shardline
