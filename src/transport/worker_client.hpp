#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "security/credentials.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// What a worker says of itself.
struct WorkerDescription {
    std::string address;  // as it was asked for
    std::string name;
    std::string build;
    std::uint32_t protocol_major = 0;
    std::uint32_t protocol_minor = 0;
    std::uint64_t memory_limit_bytes = 0;  // what it may use; 0: no limit but the host's
    std::uint64_t memory_available_bytes = 0;
    std::uint32_t num_cores = 0;
    std::string device;
    std::string machine;  // equal for workers that share its cores; empty: unknown
    std::vector<std::string> devices;
    std::string activity;      // "idle", "serving den/4711", ...
    bool holds_model = false;  // all files of the model that was asked about
};

// Long enough for a busy machine, short enough for somebody who waits at a terminal.
inline constexpr std::chrono::milliseconds kDescribeTimeout{5000};

// Asks one worker. Throws Error(kUnavailable) when nothing listens there, when what listens does
// not speak TLS or our protocol, or does not answer in time; kPermissionDenied when it belongs to
// another fleet; kUnsupported, naming both versions and the worker, when its protocol is another.
WorkerDescription describe_worker(const std::string& address, const Credentials& credentials,
                                  std::chrono::milliseconds timeout,
                                  const std::optional<ModelFingerprint>& model = std::nullopt);

// Host and port of "host:port" or "[v6]:port"; throws Error(kInvalidArgument).
struct HostPort {
    std::string host;
    std::uint16_t port = 0;
};
HostPort parse_address(const std::string& address);

}  // namespace shardline
