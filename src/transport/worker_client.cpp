#include "transport/worker_client.hpp"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <charconv>

#include "base/error.hpp"
#include "fleet.grpc.pb.h"
#include "transport/grpc_connection.hpp"
#include "transport/protocol.hpp"
#include "transport/wire_spec.hpp"
#include "transport/worker_link.hpp"

namespace shardline {
namespace {

constexpr std::size_t kMaxHostBytes = 253;  // of a DNS name

[[noreturn]] void refuse_address(const std::string& address) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no address; write host:port or [v6 address]:port",
                            address.substr(0, kMaxHostBytes)));
}

}  // namespace

HostPort parse_address(const std::string& address) {
    const std::size_t colon = address.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon > kMaxHostBytes) {
        refuse_address(address);
    }
    HostPort parsed;
    parsed.host = address.substr(0, colon);
    const bool bracketed =
        parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']';
    if (bracketed) {
        parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    }
    const char* allowed = bracketed ? "0123456789abcdefABCDEF:.%"
                                    : "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "0123456789.-_";
    if (parsed.host.find_first_not_of(allowed) != std::string::npos) {
        refuse_address(address);
    }
    const char* end = address.data() + address.size();
    const auto [rest, failure] = std::from_chars(address.data() + colon + 1, end, parsed.port);
    if (failure != std::errc{} || rest != end) {
        refuse_address(address);
    }
    return parsed;
}

WorkerDescription describe_worker(const std::string& address, const Credentials& credentials,
                                  std::chrono::milliseconds timeout,
                                  const std::optional<ModelFingerprint>& model) {
    return WorkerLink(address, credentials, {"a client", {}, {}}, {}).describe(timeout, model);
}

}  // namespace shardline
