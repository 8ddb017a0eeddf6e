#include "transport/worker_link.hpp"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "fleet.grpc.pb.h"
#include "stage.grpc.pb.h"
#include "transport/piece_sender.hpp"
#include "transport/protocol.hpp"
#include "transport/stream_reader.hpp"
#include "transport/wire_codec.hpp"

namespace shardline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxDevices = 64;

std::int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
        .count();
}

wire::LoadRequest load_request(const PeerHello& hello, const WorkerLink::LoadOrder& order) {
    wire::LoadRequest request;
    wire::LoadStage& stage = *request.mutable_stage();
    encode_hello(hello, *stage.mutable_hello());
    encode_spec(order.spec, *stage.mutable_spec());
    stage.set_stage(order.stage);
    stage.set_downstream_address(order.downstream_address);
    stage.set_stages_after(order.stages_after);
    return request;
}

LoadedStage decode_ready(const wire::StageReady& ready, const StageSpec& spec,
                         const std::string& who) {
    if (ready.num_blocks() != spec.num_blocks || ready.max_rows() != spec.max_rows ||
        ready.max_context() != spec.max_context) {
        throw Error(ErrorCode::kCorrupt, fmt::format("{} loaded another stage than asked", who));
    }
    LoadedStage loaded;
    loaded.effective = decode_effective(ready.effective());
    loaded.weights_bytes = ready.weights_bytes();
    loaded.kv_pool_bytes = ready.kv_pool_bytes();
    loaded.resident_bytes = ready.resident_bytes();
    loaded.reused = ready.reused();
    return loaded;
}

}  // namespace

struct WorkerLink::State {
    std::string address;
    Credentials credentials;
    PeerHello hello;
    WorkerLinkCallbacks callbacks;
    std::shared_ptr<grpc::Channel> control;
    std::unique_ptr<wire::Fleet::Stub> fleet;
    std::shared_ptr<grpc::Channel> data;
    std::unique_ptr<wire::Stage::Stub> stage;
    std::atomic<std::int64_t> heard_ms = 0;
    std::atomic<std::uint64_t> steps_inside = 0;
    mutable std::mutex mutex;
    WorkerDescription description;                             // guarded by mutex
    grpc::ClientContext* loading = nullptr;                    // guarded by mutex
    bool cancelled = false;                                    // guarded by mutex
    std::unique_ptr<StreamReader<wire::WatchReply>> watch;     // set under mutex
    std::unique_ptr<StreamReader<wire::ResultFrame>> results;  // set under mutex

    std::string who() const {
        std::lock_guard lock(mutex);
        return description.name.empty() ? fmt::format("worker at {}", address)
                                        : fmt::format("worker {} ({})", description.name, address);
    }

    [[noreturn]] void fail(const grpc::Status& status) const {
        throw to_error(status, who(), address, credentials);
    }

    void take_watch_frame(wire::WatchReply& frame) {
        heard_ms = now_ms();
        if (frame.has_heartbeat()) {
            const wire::Heartbeat& beat = frame.heartbeat();
            steps_inside = beat.steps_received() - beat.steps_finished();
        } else if (frame.has_ended()) {
            StepResult result = decode_result(std::move(*frame.mutable_ended()));
            if (result.status == StepStatus::kDone) {
                throw Error(ErrorCode::kCorrupt, "a step that was done came as one that was not");
            }
            callbacks.on_result(std::move(result));
        } else if (frame.has_trouble()) {
            callbacks.on_lost(wire_text(frame.trouble().reason()), frame.trouble().downstream());
        }
    }

    void take_result_frame(wire::ResultFrame& frame, std::size_t max_bytes) {
        if (!frame.has_result() || frame.ByteSizeLong() > max_bytes) {
            throw Error(ErrorCode::kCorrupt, "a result frame is too large or no result");
        }
        callbacks.on_result(decode_result(std::move(*frame.mutable_result())));
    }

    // From here on cancel() reaches the stream.
    template <typename Reader>
    bool wait_open(std::unique_ptr<Reader>& place, std::unique_ptr<Reader> reader,
                   std::chrono::milliseconds timeout) {
        {
            std::lock_guard lock(mutex);
            place = std::move(reader);
            if (cancelled) {
                place->cancel();
            }
        }
        return place->wait_open(timeout);
    }

    // Registers a call so that cancel() reaches it.
    void set_loading(grpc::ClientContext* context) {
        std::lock_guard lock(mutex);
        loading = context;
        if (context != nullptr && cancelled) {
            context->TryCancel();
        }
    }
};

WorkerLink::WorkerLink(std::string address, Credentials credentials, PeerHello hello,
                       WorkerLinkCallbacks callbacks)
    : state_(std::make_unique<State>()) {
    state_->address = std::move(address);
    state_->credentials = std::move(credentials);
    state_->hello = std::move(hello);
    state_->callbacks = std::move(callbacks);
    state_->control = open_channel(state_->address, state_->credentials, Purpose::kControl,
                                   kMaxControlFrameBytes);
    state_->fleet = wire::Fleet::NewStub(state_->control);
}

WorkerLink::~WorkerLink() {
    close();
}

WorkerDescription WorkerLink::describe(std::chrono::milliseconds timeout,
                                       const std::optional<ModelFingerprint>& model) {
    wire::DescribeRequest request;
    encode_hello(state_->hello, *request.mutable_hello());
    if (model) {
        request.mutable_model()->set_xml_sha256(model->xml_sha256);
        request.mutable_model()->set_bin_bytes(model->bin_bytes);
    }
    grpc::ClientContext context;
    set_deadline(context, timeout);
    wire::DescribeReply reply;
    state_->set_loading(&context);
    const grpc::Status status = state_->fleet->Describe(&context, request, &reply);
    state_->set_loading(nullptr);
    if (!status.ok()) {
        state_->fail(status);
    }
    const PeerHello hello =
        decode_hello(reply.hello(), fmt::format("{} (to {})", state_->hello.node, state_->address));
    WorkerDescription description;
    description.address = state_->address;
    description.name = wire_text(hello.node);
    description.build = wire_text(reply.hello().build());
    description.protocol_major = reply.hello().protocol_major();
    description.protocol_minor = reply.hello().protocol_minor();
    description.memory_limit_bytes = reply.memory_limit_bytes();
    description.memory_available_bytes = reply.memory_available_bytes();
    description.num_cores = reply.num_cores();
    description.device = wire_text(reply.device());
    description.machine = wire_text(reply.machine());
    for (int i = 0; i < reply.devices_size() && i < kMaxDevices; ++i) {
        description.devices.push_back(wire_text(reply.devices(i)));
    }
    description.activity = wire_text(reply.activity());
    description.holds_model = reply.holds_model();
    std::lock_guard lock(state_->mutex);
    state_->description = description;
    return description;
}

void WorkerLink::claim(std::chrono::milliseconds timeout) {
    State& state = *state_;
    wire::WatchRequest request;
    encode_hello(state.hello, *request.mutable_hello());
    auto reader = std::make_unique<StreamReader<wire::WatchReply>>(
        [&state, request](grpc::ClientContext* context) {
            return state.fleet->Watch(context, request);
        },
        [&state](wire::WatchReply& frame) { state.take_watch_frame(frame); },
        [&state](const std::string& reason) { state.callbacks.on_lost(reason, false); });
    if (!state.wait_open(state.watch, std::move(reader), timeout)) {
        state.fail(state.watch->status());
    }
    state.heard_ms = now_ms();
}

LoadedStage WorkerLink::load(const LoadOrder& order, std::chrono::milliseconds timeout,
                             const LoadProgress& progress) {
    State& state = *state_;
    // A connection of its own: weights must not hold up heartbeats.
    const auto stub = wire::Fleet::NewStub(
        open_channel(state.address, state.credentials, Purpose::kData, kMaxControlFrameBytes));
    grpc::ClientContext context;
    set_deadline(context, timeout);
    state.set_loading(&context);
    const auto stream = stub->Load(&context);
    const auto write = [&stream](const wire::LoadRequest& message) {
        return stream->Write(message);
    };
    write(load_request(state.hello, order));
    PieceSender sender(order.model_directory, order.spec.fingerprint);
    wire::LoadReply reply;
    std::optional<wire::StageReady> ready;
    std::optional<Error> fault;
    while (!ready && !fault && stream->Read(&reply)) {
        if (reply.has_progress()) {
            const std::string phase = wire_text(reply.progress().phase());
            progress(phase.c_str(), reply.progress().fraction());
        } else if (reply.has_ready()) {
            ready = reply.ready();
        } else {
            try {
                sender.answer(reply, write);
            } catch (const Error& error) {
                fault = error;
                context.TryCancel();
            }
        }
    }
    stream->WritesDone();
    const grpc::Status status = stream->Finish();
    state.set_loading(nullptr);
    if (fault) {
        throw Error(fault->code(), fmt::format("{}: {}", who(), fault->what()));
    }
    if (!status.ok()) {
        state.fail(status);
    }
    if (!ready) {
        throw Error(ErrorCode::kCorrupt, fmt::format("{} ended a load without a word", who()));
    }
    return decode_ready(*ready, order.spec, who());
}

void WorkerLink::open_results(std::chrono::milliseconds timeout, std::uint32_t max_rows) {
    State& state = *state_;
    const std::size_t max_bytes = max_frame_bytes(max_rows, kMaxResultRowBytes);
    wire::ResultsRequest request;
    encode_hello(state.hello, *request.mutable_hello());
    state.data = open_channel(state.address, state.credentials, Purpose::kData, max_bytes);
    state.stage = wire::Stage::NewStub(state.data);
    auto reader = std::make_unique<StreamReader<wire::ResultFrame>>(
        [&state, request](grpc::ClientContext* context) {
            return state.stage->Results(context, request);
        },
        [&state, max_bytes](wire::ResultFrame& frame) {
            state.take_result_frame(frame, max_bytes);
        },
        [&state](const std::string& reason) { state.callbacks.on_lost(reason, false); });
    if (!state.wait_open(state.results, std::move(reader), timeout)) {
        state.fail(state.results->status());
    }
}

std::string WorkerLink::who() const {
    return state_->who();
}

std::chrono::milliseconds WorkerLink::silence() const {
    const std::int64_t heard = state_->heard_ms;
    return std::chrono::milliseconds(heard == 0 ? 0 : now_ms() - heard);
}

std::uint64_t WorkerLink::steps_inside() const {
    return state_->steps_inside;
}

void WorkerLink::cancel() {
    std::lock_guard lock(state_->mutex);
    state_->cancelled = true;
    if (state_->watch) {
        state_->watch->cancel();
    }
    if (state_->results) {
        state_->results->cancel();
    }
    if (state_->loading != nullptr) {
        state_->loading->TryCancel();
    }
}

void WorkerLink::close() {
    cancel();
    if (state_->watch) {
        state_->watch->close();
    }
    if (state_->results) {
        state_->results->close();
    }
}

}  // namespace shardline
