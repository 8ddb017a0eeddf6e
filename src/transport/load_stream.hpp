#pragma once

#include <grpcpp/grpcpp.h>

#include "fleet.grpc.pb.h"
#include "transport/watchdog.hpp"
#include "transport/worker_host.hpp"

namespace shardline {

using LoadStream = grpc::ServerReaderWriter<wire::LoadReply, wire::LoadRequest>;

// The worker's side of one load: reads what stage to become, asks for what it lacks of the model,
// reports progress and, when the stage is ready, what it has become. Throws Error.
void serve_load(WorkerHost& host, Watchdog& watchdog, grpc::ServerContext& context,
                LoadStream& stream);

}  // namespace shardline
