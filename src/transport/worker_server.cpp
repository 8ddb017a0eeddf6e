#include "transport/worker_server.hpp"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "transport/grpc_connection.hpp"
#include "transport/watchdog.hpp"
#include "transport/worker_client.hpp"
#include "transport/worker_host.hpp"
#include "transport/worker_services.hpp"

namespace shardline {
namespace {

// Streams that do not end by themselves are cancelled after this.
constexpr std::chrono::milliseconds kShutdownGrace{1000};

}  // namespace

void WorkerOptions::validate() const {
    parse_address(listen);
    if (name.empty()) {
        throw Error(ErrorCode::kInvalidArgument, "a worker needs a name");
    }
    if (credentials.authority.empty() || credentials.certificate.empty() ||
        credentials.private_key.empty()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "a worker needs credentials; make some with 'shardline fleet'");
    }
}

struct WorkerServer::State {
    State(const WorkerOptions& options, StageLoader loader, StageSizer sizer)
        : host(options, std::move(loader), std::move(sizer)),
          stage_service(make_stage_service(host, watchdog)),
          fleet_service(make_fleet_service(host, watchdog)) {}

    WorkerHost host;
    Watchdog watchdog;
    std::unique_ptr<grpc::Service> stage_service;
    std::unique_ptr<grpc::Service> fleet_service;
    std::unique_ptr<grpc::Server> server;
    int port = 0;
};

WorkerServer::WorkerServer(const WorkerOptions& options, StageLoader loader, StageSizer sizer) {
    options.validate();
    state_ = std::make_unique<State>(options, std::move(loader), std::move(sizer));
    grpc::ServerBuilder builder;
    configure_server(builder);
    builder.AddListeningPort(options.listen, make_server_credentials(options.credentials),
                             &state_->port);
    builder.RegisterService(state_->stage_service.get());
    builder.RegisterService(state_->fleet_service.get());
    state_->server = builder.BuildAndStart();
    if (!state_->server || state_->port == 0) {
        throw Error(ErrorCode::kUnavailable,
                    fmt::format("cannot listen on {}; is the port in use, or the credentials "
                                "damaged?",
                                options.listen));
    }
    room_logger("transport")
        ->info("'{}' listens on {} (port {})", options.name, options.listen, state_->port);
}

WorkerServer::~WorkerServer() {
    if (state_ && state_->server) {
        shutdown();
    }
}

int WorkerServer::port() const {
    return state_->port;
}

void WorkerServer::wait() {
    state_->server->Wait();
}

void WorkerServer::shutdown() {
    state_->host.begin_shutdown();
    state_->server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
}

}  // namespace shardline
