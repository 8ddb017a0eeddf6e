#include "transport/grpc_chain.hpp"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <array>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/platform.hpp"
#include "transport/step_sender.hpp"
#include "transport/worker_link.hpp"

namespace shardline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMonitorPeriod{100};

// Runs `task` for 0 to count - 1 side by side and throws what the first that failed threw.
void for_all(std::size_t count, const std::function<void(std::size_t)>& task) {
    std::vector<std::exception_ptr> faults(count);
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < count; ++i) {
            threads.emplace_back([&, i] {
                try {
                    task(i);
                } catch (...) {
                    faults[i] = std::current_exception();
                }
            });
        }
    }
    for (const std::exception_ptr& fault : faults) {
        if (fault) {
            std::rethrow_exception(fault);
        }
    }
}

}  // namespace

CoordinatorIdentity make_coordinator_identity() {
    std::array<unsigned char, 16> random{};
    if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) {
        throw Error(ErrorCode::kInternal, "no random numbers to be had");
    }
    CoordinatorIdentity identity;
    identity.name = fmt::format("{}/{}", host_name(), own_pid());
    for (const unsigned char byte : random) {
        identity.id += fmt::format("{:02x}", byte);
    }
    return identity;
}

struct GrpcChain::State {
    enum class Phase { kNew, kLoading, kUp, kDown, kClosed };

    State(const Credentials& own_credentials, std::vector<ChainHop> chain_hops, Epoch chain_epoch,
          ChainOptions chain_options, ChainCallbacks chain_callbacks)
        : credentials(own_credentials),
          hops(std::move(chain_hops)),
          epoch(chain_epoch),
          options(std::move(chain_options)),
          callbacks(std::move(chain_callbacks)) {}

    const Credentials credentials;
    const std::vector<ChainHop> hops;
    const Epoch epoch;
    const ChainOptions options;
    const ChainCallbacks callbacks;

    std::vector<std::unique_ptr<WorkerLink>> links;
    std::unique_ptr<StepSender> sender;  // set before kUp

    std::mutex mutex;
    std::condition_variable_any changed;
    Phase phase = Phase::kNew;                      // guarded by mutex
    std::string down_reason;                        // guarded by mutex
    std::map<StepId, Clock::time_point> in_flight;  // guarded by mutex
    std::mutex deliver_mutex;                       // callbacks come one at a time
    std::jthread monitor;

    PeerHello hello() const { return {options.coordinator.name, options.coordinator.id, epoch}; }

    bool usable() {
        std::lock_guard lock(mutex);
        return phase == Phase::kLoading || phase == Phase::kUp;
    }

    void cancel_links() {
        for (const auto& link : links) {
            link->cancel();
        }
    }

    void go_down(const std::string& reason) {
        bool was_up = false;
        {
            std::lock_guard delivering(deliver_mutex);
            {
                std::lock_guard lock(mutex);
                if (phase != Phase::kLoading && phase != Phase::kUp) {
                    return;
                }
                was_up = phase == Phase::kUp;
                phase = Phase::kDown;
                down_reason = reason;
                in_flight.clear();
            }
            if (was_up && callbacks.on_down) {
                callbacks.on_down(reason);
            }
        }
        cancel_links();  // the workers are free at once
    }

    void take_result(StepResult result) {
        std::lock_guard delivering(deliver_mutex);
        {
            std::lock_guard lock(mutex);
            if (phase != Phase::kUp || result.epoch != epoch || in_flight.erase(result.step) == 0) {
                return;  // stale, or answered before
            }
        }
        if (callbacks.on_result) {
            callbacks.on_result(std::move(result));
        }
    }

    void make_links() {
        for (std::size_t i = 0; i < hops.size(); ++i) {
            WorkerLinkCallbacks link_callbacks;
            link_callbacks.on_result = [this](StepResult result) {
                take_result(std::move(result));
            };
            link_callbacks.on_lost = [this, i](const std::string& reason, bool downstream) {
                const std::size_t lost = downstream && i + 1 < links.size() ? i + 1 : i;
                go_down(fmt::format("{}: {}{}", links[lost]->who(), reason,
                                    lost == i ? "" : ", says the one before it"));
            };
            links.push_back(std::make_unique<WorkerLink>(hops[i].address, credentials, hello(),
                                                         std::move(link_callbacks)));
        }
    }

    // Empty while all is well.
    std::string find_trouble() {
        for (const auto& link : links) {
            if (const auto silence = link->silence(); silence > options.heartbeat_lost) {
                return fmt::format("{}: nothing heard for {} ms", link->who(), silence.count());
            }
        }
        std::lock_guard lock(mutex);
        const auto now = Clock::now();
        for (const auto& [step, sent] : in_flight) {
            if (now - sent > options.step_timeout) {
                return fmt::format("{}: step {} has not come back for {} s", where_steps_are(),
                                   to_number(step), options.step_timeout.count() / 1000);
            }
        }
        return {};
    }

    std::string where_steps_are() const {
        for (const auto& link : links) {
            if (link->steps_inside() > 0) {
                return link->who();
            }
        }
        return "the chain";
    }

    void watch_over(const std::stop_token& stopping) {
        while (!stopping.stop_requested()) {
            if (const std::string trouble = find_trouble(); !trouble.empty()) {
                go_down(trouble);
                return;
            }
            std::unique_lock lock(mutex);
            changed.wait_for(lock, stopping, kMonitorPeriod, [] { return false; });
        }
    }

    void load_stages(const std::filesystem::path& model_directory, const ChainProgress& progress,
                     std::vector<LoadedStage>& loaded) {
        std::mutex progress_mutex;
        for_all(hops.size(), [&](std::size_t i) {
            WorkerLink::LoadOrder order;
            order.spec = hops[i].spec;
            order.stage = static_cast<std::uint32_t>(i);
            order.stages_after = static_cast<std::uint32_t>(hops.size() - 1 - i);
            order.model_directory = model_directory;
            if (i + 1 < hops.size()) {
                order.downstream_address = hops[i + 1].address;
            }
            WorkerDescription worker = std::move(loaded[i].worker);
            loaded[i] = links[i]->load(order, options.load_timeout,
                                       [&](const char* phase_name, double fraction) {
                                           std::lock_guard lock(progress_mutex);
                                           if (progress) {
                                               progress(i, phase_name, fraction);
                                           }
                                       });
            loaded[i].worker = std::move(worker);
        });
        for (std::size_t i = 1; i < loaded.size(); ++i) {
            const std::string fault = difference(loaded[0].effective, loaded[i].effective);
            if (!fault.empty()) {
                throw Error(ErrorCode::kUnsupported,
                            fmt::format("{} and {} would compute different bits: {}",
                                        links[0]->who(), links[i]->who(), fault));
            }
            const std::string kernels = kernel_difference(loaded[0].effective, loaded[i].effective);
            if (!kernels.empty()) {
                room_logger("transport")
                    ->warn("{} and {} may round differently: {}", links[0]->who(), links[i]->who(),
                           kernels);
            }
        }
    }

    void open_streams() {
        links.back()->open_results(options.connect_timeout, hops.back().spec.max_rows);
        sender = std::make_unique<StepSender>(
            hops.front().address, credentials, hello(),
            kOpenHopTimeout * static_cast<int>(hops.size()), [this](const std::string& reason) {
                go_down(fmt::format("{}: {}", links.front()->who(), reason));
            });
    }

    void set_up(const std::filesystem::path& model_directory, const ChainProgress& progress,
                std::vector<LoadedStage>& loaded) {
        for_all(links.size(), [&](std::size_t i) {
            loaded[i].worker =
                links[i]->describe(options.connect_timeout, hops[i].spec.fingerprint);
        });
        for_all(links.size(), [&](std::size_t i) { links[i]->claim(options.connect_timeout); });
        monitor = std::jthread([this](const std::stop_token& stopping) { watch_over(stopping); });
        load_stages(model_directory, progress, loaded);
        open_streams();
    }
};

GrpcChain::GrpcChain(const Credentials& credentials, std::vector<ChainHop> hops, Epoch epoch,
                     ChainOptions options, ChainCallbacks callbacks) {
    std::set<std::string> addresses;
    for (const ChainHop& hop : hops) {
        parse_address(hop.address);
        if (!addresses.insert(hop.address).second) {
            throw Error(ErrorCode::kInvalidArgument,
                        fmt::format("{} is named twice; a worker hosts one stage", hop.address));
        }
    }
    if (hops.empty() || hops.size() > kMaxStages) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("a chain has 1 to {} workers, not {}", kMaxStages, hops.size()));
    }
    if (options.coordinator.id.empty()) {
        options.coordinator = make_coordinator_identity();
    }
    state_ = std::make_unique<State>(credentials, std::move(hops), epoch, std::move(options),
                                     std::move(callbacks));
    state_->make_links();
}

GrpcChain::~GrpcChain() {
    if (state_) {
        close();
    }
}

std::vector<LoadedStage> GrpcChain::load(const std::filesystem::path& model_directory,
                                         const ChainProgress& progress) {
    State& state = *state_;
    {
        std::lock_guard lock(state.mutex);
        if (state.phase != State::Phase::kNew) {
            throw Error(ErrorCode::kUnavailable, "the chain was closed or loaded before");
        }
        state.phase = State::Phase::kLoading;
    }
    std::vector<LoadedStage> loaded(state.hops.size());
    std::exception_ptr fault;
    try {
        state.set_up(model_directory, progress, loaded);
    } catch (const Error&) {
        fault = std::current_exception();
    }
    std::unique_lock lock(state.mutex);
    if (state.phase == State::Phase::kDown) {
        throw Error(ErrorCode::kUnavailable, state.down_reason);  // the cause of the rest
    }
    if (state.phase == State::Phase::kClosed) {
        throw Error(ErrorCode::kUnavailable, "the chain was closed while it loaded");
    }
    if (fault) {
        state.phase = State::Phase::kDown;
        lock.unlock();
        state.cancel_links();
        std::rethrow_exception(fault);
    }
    state.phase = State::Phase::kUp;
    return loaded;
}

bool GrpcChain::send(Step step) {
    State& state = *state_;
    const StepId id = step.plan.step;
    {
        std::lock_guard lock(state.mutex);
        if (state.phase != State::Phase::kUp || step.plan.epoch != state.epoch ||
            state.in_flight.size() >= kMaxStepsInFlight ||
            !state.in_flight.emplace(id, Clock::now()).second) {
            return false;
        }
    }
    if (state.sender->push(std::move(step))) {
        return true;
    }
    std::lock_guard lock(state.mutex);
    // Down meanwhile: then its loss is told already, with all others.
    return state.in_flight.erase(id) == 0;
}

void GrpcChain::cancel(StepId step) {
    {
        std::lock_guard lock(state_->mutex);
        if (state_->phase != State::Phase::kUp) {
            return;
        }
    }
    state_->sender->cancel(state_->epoch, step);
}

std::uint32_t GrpcChain::num_stages() const {
    return static_cast<std::uint32_t>(state_->hops.size());
}

void GrpcChain::close() {
    State& state = *state_;
    bool loading = false;
    {
        // Waits for a callback that runs; none begins afterwards.
        std::lock_guard delivering(state.deliver_mutex);
        std::lock_guard lock(state.mutex);
        loading = state.phase == State::Phase::kLoading;
        state.phase = State::Phase::kClosed;
        state.in_flight.clear();
    }
    state.cancel_links();
    if (loading) {
        return;  // load() is still inside; what it holds ends with this object
    }
    if (state.monitor.joinable()) {
        state.monitor.request_stop();
        state.monitor.join();
    }
    if (state.sender) {
        state.sender->close();
    }
    for (const auto& link : state.links) {
        link->close();
    }
}

}  // namespace shardline
