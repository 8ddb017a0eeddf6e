#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "stage.grpc.pb.h"
#include "transport/grpc_connection.hpp"
#include "transport/protocol.hpp"
#include "transport/stage_run.hpp"
#include "transport/wire_codec.hpp"
#include "transport/worker_services.hpp"

namespace shardline {
namespace {

// How soon a stream notices that its other end is gone while nothing happens.
constexpr std::chrono::milliseconds kIdleCheck{200};

class StageService final : public wire::Stage::Service {
public:
    StageService(WorkerHost& host, Watchdog& watchdog) : host_(host), watchdog_(watchdog) {}

    grpc::Status Steps(
        grpc::ServerContext* context,
        grpc::ServerReaderWriter<wire::StepsReply, wire::StepFrame>* stream) override {
        try {
            return run_steps(*context, *stream);
        } catch (const Error& error) {
            room_logger("transport")
                ->warn("closing the step stream from {}: {}", context->peer(), error.what());
            return to_status(error);
        } catch (const std::exception& error) {
            return to_status(Error(ErrorCode::kInternal, error.what()));
        }
    }

    grpc::Status Results(grpc::ServerContext* context, const wire::ResultsRequest* request,
                         grpc::ServerWriter<wire::ResultFrame>* stream) override {
        try {
            return run_results(*context, *request, *stream);
        } catch (const std::exception& error) {
            return to_status(Error(ErrorCode::kUnavailable, error.what()));
        }
    }

private:
    using StepStream = grpc::ServerReaderWriter<wire::StepsReply, wire::StepFrame>;

    grpc::Status session_over() const {
        return to_status(Error(ErrorCode::kUnavailable,
                               host_.shutting_down() ? "shutting down" : "the session has ended"));
    }

    PeerHello read_hello(grpc::ServerContext& context, StepStream& stream) {
        const auto guard = watchdog_.arm(kHelloTimeout, [&context] { context.TryCancel(); });
        wire::StepFrame frame;
        if (!stream.Read(&frame) || !frame.has_hello()) {
            throw Error(ErrorCode::kCorrupt,
                        fmt::format("'{}' expects a hello as the first frame", host_.name()));
        }
        return decode_hello(frame.hello(), host_.name());
    }

    grpc::Status run_steps(grpc::ServerContext& context, StepStream& stream) {
        const PeerHello hello = read_hello(context, stream);
        const auto session = host_.join(hello);
        const auto run = host_.start_stage(session, [&context] { context.TryCancel(); });
        wire::StepsReply reply;
        encode_hello({host_.name(), {}, hello.epoch}, *reply.mutable_hello());
        stream.Write(reply);
        wire::StepFrame frame;
        while (stream.Read(&frame)) {
            run->take(frame);
            frame.Clear();
        }
        if (!context.IsCancelled() && !session->ended()) {
            throw Error(ErrorCode::kCorrupt,
                        "the step stream ended, or held a frame that is no message of ours");
        }
        return session_over();
    }

    grpc::Status run_results(grpc::ServerContext& context, const wire::ResultsRequest& request,
                             grpc::ServerWriter<wire::ResultFrame>& stream) {
        const PeerHello hello = decode_hello(request.hello(), host_.name());
        const auto session = host_.join(hello);
        if (!session->begin_results()) {
            throw Error(ErrorCode::kUnavailable, "the results are being read already");
        }
        wire::ResultFrame frame;
        encode_hello({host_.name(), {}, hello.epoch}, *frame.mutable_hello());
        bool open = stream.Write(frame);
        while (open && !session->ended() && !context.IsCancelled()) {
            auto result = session->next_result(kIdleCheck);
            if (result) {
                frame.Clear();
                encode_result(std::move(*result), *frame.mutable_result());
                open = stream.Write(frame);
            }
        }
        session->end_results();
        return session_over();
    }

    WorkerHost& host_;
    Watchdog& watchdog_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_stage_service(WorkerHost& host, Watchdog& watchdog) {
    return std::make_unique<StageService>(host, watchdog);
}

}  // namespace shardline
