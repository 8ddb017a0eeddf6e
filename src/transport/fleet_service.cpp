#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/platform.hpp"
#include "fleet.grpc.pb.h"
#include "transport/grpc_connection.hpp"
#include "transport/load_stream.hpp"
#include "transport/protocol.hpp"
#include "transport/wire_codec.hpp"
#include "transport/worker_services.hpp"

namespace shardline {
namespace {

// How soon a watch notices that the coordinator is gone while nothing happens.
constexpr std::chrono::milliseconds kIdleCheck{100};

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

// However a watch ends, the worker is free.
class Claim final {
public:
    Claim(WorkerHost& host, const PeerHello& hello, const std::string& peer)
        : host_(host), session_(host.claim(hello, peer)) {}
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim() { host_.release(session_); }

    WorkerSession& session() const { return *session_; }

private:
    WorkerHost& host_;
    const std::shared_ptr<WorkerSession> session_;
};

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
            const Claim claim(host_, hello, context->peer());
            run_watch(*context, claim.session(), *stream);
            return host_.shutting_down()
                       ? to_status(Error(ErrorCode::kUnavailable, "shutting down"))
                       : grpc::Status::OK;
        });
    }

    grpc::Status Load(grpc::ServerContext* context, LoadStream* stream) override {
        return guarded(*context, "a load", [&] {
            serve_load(host_, watchdog_, *context, *stream);
            return grpc::Status::OK;
        });
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
        reply.set_machine(shared_cores_id());
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
                const auto& trouble = std::get<WorkerSession::Trouble>(*event);
                reply.mutable_trouble()->set_reason(wire_text(trouble.reason));
                reply.mutable_trouble()->set_downstream(trouble.downstream);
            }
            open = stream.Write(reply) && !host_.shutting_down();
            reply.Clear();
        }
    }

    WorkerHost& host_;
    Watchdog& watchdog_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_fleet_service(WorkerHost& host, Watchdog& watchdog) {
    return std::make_unique<FleetService>(host, watchdog);
}

}  // namespace shardline
