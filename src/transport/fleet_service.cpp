#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/platform.hpp"
#include "fleet.grpc.pb.h"
#include "transport/grpc_connection.hpp"
#include "transport/protocol.hpp"
#include "transport/wire_codec.hpp"
#include "transport/worker_services.hpp"

namespace shardline {
namespace {

// How soon a watch notices that the coordinator is gone while nothing happens.
constexpr std::chrono::milliseconds kIdleCheck{100};

constexpr std::chrono::milliseconds kProgressPeriod{100};

template <typename Call>
grpc::Status guarded(const grpc::ServerContext& context, const char* what, Call&& call) {
    try {
        return call();
    } catch (const Error& error) {
        room_logger("transport")
            ->warn("refused {} from {}: {}", what, context.peer(), error.what());
        return to_status(error);
    } catch (const std::exception& error) {
        room_logger("transport")
            ->error("{} from {} failed: {}", what, context.peer(), error.what());
        return to_status(Error(ErrorCode::kInternal, error.what()));
    }
}

using LoadStream = grpc::ServerReaderWriter<wire::LoadReply, wire::LoadRequest>;

class FleetService final : public wire::Fleet::Service {
public:
    FleetService(WorkerHost& host, Watchdog& watchdog) : host_(host), watchdog_(watchdog) {}

    grpc::Status Describe(grpc::ServerContext* context, const wire::DescribeRequest* request,
                          wire::DescribeReply* reply) override {
        return guarded(*context, "a description", [&] {
            decode_hello(request->hello(), host_.name());
            encode_hello({host_.name(), {}, {}}, *reply->mutable_hello());
            fill_description(*request, *reply);
            return grpc::Status::OK;
        });
    }

    grpc::Status Watch(grpc::ServerContext* context, const wire::WatchRequest* request,
                       grpc::ServerWriter<wire::WatchReply>* stream) override {
        return guarded(*context, "a watch", [&] {
            const PeerHello hello = decode_hello(request->hello(), host_.name());
            const auto session = host_.claim(hello, context->peer());
            run_watch(*context, *session, *stream);
            host_.release(session);
            return host_.shutting_down()
                       ? to_status(Error(ErrorCode::kUnavailable, "shutting down"))
                       : grpc::Status::OK;
        });
    }

    grpc::Status Load(grpc::ServerContext* context, LoadStream* stream) override {
        return guarded(*context, "a load", [&] { return run_load(*context, *stream); });
    }

    grpc::Status Unload(grpc::ServerContext* context, const wire::UnloadRequest* request,
                        wire::UnloadReply*) override {
        return guarded(*context, "an unload", [&] {
            host_.unload(host_.join(decode_hello(request->hello(), host_.name())));
            return grpc::Status::OK;
        });
    }

private:
    void fill_description(const wire::DescribeRequest& request, wire::DescribeReply& reply) {
        const WorkerOptions& options = host_.options();
        reply.set_memory_limit_bytes(options.memory_bytes);
        reply.set_memory_available_bytes(available_memory_bytes());
        reply.set_num_cores(num_cores());
        reply.set_device(options.device);
        for (const std::string& device : options.devices) {
            reply.add_devices(wire_text(device));
        }
        reply.set_activity(wire_text(host_.activity()));
        if (request.has_model()) {
            reply.set_holds_model(
                host_.holds_model({request.model().xml_sha256(), request.model().bin_bytes()}));
        }
    }

    static void fill_heartbeat(const WorkerSession& session, wire::Heartbeat& heartbeat) {
        heartbeat.set_steps_received(session.steps_received);
        heartbeat.set_steps_finished(session.steps_finished);
        heartbeat.set_memory_available_bytes(available_memory_bytes());
    }

    void run_watch(grpc::ServerContext& context, WorkerSession& session,
                   grpc::ServerWriter<wire::WatchReply>& stream) {
        using Clock = std::chrono::steady_clock;
        wire::WatchReply reply;
        encode_hello({host_.name(), {}, session.owner().epoch}, *reply.mutable_hello());
        bool open = stream.Write(reply);
        auto next_heartbeat = Clock::now();
        while (open && !session.ended() && !context.IsCancelled()) {
            if (Clock::now() >= next_heartbeat) {
                next_heartbeat = Clock::now() + kHeartbeatPeriod;
                fill_heartbeat(session, *reply.mutable_heartbeat());
                open = stream.Write(reply);
                continue;
            }
            auto event = session.next_event(kIdleCheck);
            if (!event) {
                continue;
            }
            if (auto* result = std::get_if<StepResult>(&*event)) {
                encode_result(std::move(*result), *reply.mutable_ended());
            } else {
                reply.mutable_trouble()->set_reason(wire_text(std::get<std::string>(*event)));
            }
            open = stream.Write(reply) && !host_.shutting_down();
            reply.Clear();
        }
    }

    grpc::Status run_load(grpc::ServerContext& context, LoadStream& stream) {
        wire::LoadRequest request;
        {
            const auto guard = watchdog_.arm(kHelloTimeout, [&context] { context.TryCancel(); });
            if (!stream.Read(&request) || !request.has_stage()) {
                throw Error(ErrorCode::kCorrupt, "the first message of a load names no stage");
            }
        }
        const wire::LoadStage& order = request.stage();
        const auto session = host_.join(decode_hello(order.hello(), host_.name()));
        const StageSpec spec = decode_spec(order.spec());
        StagePlace place{order.stage(), order.downstream_address(), order.stages_after()};
        if (!place.downstream_address.empty()) {
            parse_address(place.downstream_address);
        }
        if (place.stage >= kMaxStages || place.stages_after >= kMaxStages) {
            throw Error(ErrorCode::kCorrupt, "a chain of too many stages");
        }
        const LoadedStage loaded = host_.load(
            session, spec, place, [&context] { context.TryCancel(); },
            [&, next = std::chrono::steady_clock::time_point{}](const char* phase,
                                                                double fraction) mutable {
                report_progress(context, stream, phase, fraction, next);
            });
        return send_ready(stream, spec, loaded);
    }

    static void report_progress(const grpc::ServerContext& context, LoadStream& stream,
                                const char* phase, double fraction,
                                std::chrono::steady_clock::time_point& next) {
        if (context.IsCancelled()) {
            throw Error(ErrorCode::kUnavailable, "the coordinator has gone, loading is given up");
        }
        const auto now = std::chrono::steady_clock::now();
        if (now < next && fraction < 1.0) {
            return;
        }
        next = now + kProgressPeriod;
        wire::LoadReply reply;
        reply.mutable_progress()->set_phase(wire_text(phase));
        reply.mutable_progress()->set_fraction(fraction);
        stream.Write(reply);
    }

    static grpc::Status send_ready(LoadStream& stream, const StageSpec& spec,
                                   const LoadedStage& loaded) {
        wire::LoadReply reply;
        wire::StageReady& ready = *reply.mutable_ready();
        encode_effective(loaded.effective, *ready.mutable_effective());
        ready.set_num_blocks(spec.num_blocks);
        ready.set_max_rows(spec.max_rows);
        ready.set_max_context(spec.max_context);
        ready.set_weights_bytes(loaded.weights_bytes);
        ready.set_kv_pool_bytes(loaded.kv_pool_bytes);
        ready.set_resident_bytes(loaded.resident_bytes);
        ready.set_reused(loaded.reused);
        stream.Write(reply);
        return grpc::Status::OK;
    }

    WorkerHost& host_;
    Watchdog& watchdog_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_fleet_service(WorkerHost& host, Watchdog& watchdog) {
    return std::make_unique<FleetService>(host, watchdog);
}

}  // namespace shardline
