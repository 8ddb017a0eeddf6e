#pragma once

#include <memory>

#include "transport/watchdog.hpp"
#include "transport/worker_host.hpp"

namespace grpc {
class Service;
}  // namespace grpc

namespace shardline {

// The two services of a worker (proto/stage.proto, proto/fleet.proto) over its host. gRPC calls
// them from its threads, one per open stream. Both arguments must outlive them.
std::unique_ptr<grpc::Service> make_stage_service(WorkerHost& host, Watchdog& watchdog);
std::unique_ptr<grpc::Service> make_fleet_service(WorkerHost& host, Watchdog& watchdog);

}  // namespace shardline
