#include "transport/grpc_connection.hpp"

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include <limits>
#include <mutex>
#include <utility>

#include "base/log.hpp"
#include "transport/link_diagnosis.hpp"
#include "transport/protocol.hpp"
#include "transport/wire_codec.hpp"
#include "transport/worker_client.hpp"

namespace shardline {
namespace {

constexpr int kControlKeepaliveMs = 1000;
constexpr int kControlKeepaliveTimeoutMs = 3000;
constexpr int kDataKeepaliveMs = 5000;
constexpr int kDataKeepaliveTimeoutMs = 20'000;
constexpr int kServerKeepaliveMs = 2000;
constexpr int kServerKeepaliveTimeoutMs = 15'000;
constexpr int kShortestPingIntervalMs = 500;
constexpr int kReconnectBackoffMs = 200;

// A stream may run so far ahead of its reader: a usual step goes out without waiting for a window.
constexpr int kLookaheadBytes = 8 * 1024 * 1024;

// Threads of the server: a few streams per coordinator, and room for those that are refused.
constexpr int kMaxServerThreads = 64;

// A status travels in a header, and headers are small.
constexpr std::size_t kMaxStatusTextBytes = 1024;

std::string status_text(std::string text) {
    text = wire_text(std::move(text));
    if (text.size() > kMaxStatusTextBytes) {
        text.resize(kMaxStatusTextBytes);
        text = wire_text(std::move(text));
    }
    return text;
}

// gRPC writes to stderr by itself, a line for every stranger at the door. What matters of it comes
// as a status; the rest is for debugging.
void route_grpc_log(gpr_log_func_args* line) {
    room_logger("grpc")->debug("{}", line->message);
}

void set_up_grpc_log() {
    static std::once_flag once;
    std::call_once(once, [] { gpr_set_log_function(route_grpc_log); });
}

int to_int_limit(std::size_t bytes) {
    constexpr std::size_t kLargest = std::numeric_limits<int>::max();
    return static_cast<int>(bytes < kLargest ? bytes : kLargest);
}

// Statuses of ours. kUnavailable does not travel as UNAVAILABLE, which gRPC makes itself when a
// connection fails.
constexpr std::pair<ErrorCode, grpc::StatusCode> kCodes[] = {
    {ErrorCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
    {ErrorCode::kNotFound, grpc::StatusCode::NOT_FOUND},
    {ErrorCode::kUnsupported, grpc::StatusCode::FAILED_PRECONDITION},
    {ErrorCode::kCorrupt, grpc::StatusCode::DATA_LOSS},
    {ErrorCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
    {ErrorCode::kUnavailable, grpc::StatusCode::ABORTED},
    {ErrorCode::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED},
    {ErrorCode::kInternal, grpc::StatusCode::INTERNAL},
};

}  // namespace

std::shared_ptr<grpc::Channel> open_channel(const std::string& address,
                                            const Credentials& credentials, Purpose purpose,
                                            std::size_t max_receive_bytes) {
    set_up_grpc_log();
    parse_address(address);  // refuses what gRPC would read as another scheme
    const bool control = purpose == Purpose::kControl;
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(kFleetServerName);
    arguments.SetMaxReceiveMessageSize(to_int_limit(max_receive_bytes));
    arguments.SetMaxSendMessageSize(to_int_limit(kMaxFrameBytes));
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // an office's proxy is for the web
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectBackoffMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectBackoffMs);
    // The time one attempt to connect may take.
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(kConnectTimeout.count()));
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, control ? kControlKeepaliveMs : kDataKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                     control ? kControlKeepaliveTimeoutMs : kDataKeepaliveTimeoutMs);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
    const grpc::SslCredentialsOptions options{credentials.authority, credentials.private_key,
                                              credentials.certificate};
    return grpc::CreateCustomChannel(address, grpc::SslCredentials(options), arguments);
}

std::shared_ptr<grpc::ServerCredentials> make_server_credentials(const Credentials& credentials) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = credentials.authority;
    options.pem_key_cert_pairs.push_back({credentials.private_key, credentials.certificate});
    return grpc::SslServerCredentials(options);
}

void configure_server(grpc::ServerBuilder& builder) {
    set_up_grpc_log();
    grpc::ResourceQuota quota("shardline worker");
    quota.SetMaxThreads(kMaxServerThreads);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(to_int_limit(kMaxFrameBytes));
    builder.SetMaxSendMessageSize(to_int_limit(kMaxFrameBytes));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               static_cast<int>(kHelloTimeout.count()));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kServerKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kServerKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kShortestPingIntervalMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
}

void set_deadline(grpc::ClientContext& context, std::chrono::milliseconds timeout) {
    context.set_deadline(std::chrono::system_clock::now() + timeout);
}

grpc::Status to_status(const Error& error) {
    for (const auto& [ours, code] : kCodes) {
        if (ours == error.code()) {
            return {code, status_text(error.what())};
        }
    }
    return {grpc::StatusCode::INTERNAL, status_text(error.what())};
}

Error to_error(const grpc::Status& status, const std::string& peer, const std::string& address,
               const Credentials& credentials) {
    switch (status.error_code()) {
        case grpc::StatusCode::UNAVAILABLE:
        case grpc::StatusCode::DEADLINE_EXCEEDED:
            return diagnose_link(address, credentials, kConnectTimeout,
                                 wire_text(status.error_message()));
        case grpc::StatusCode::UNIMPLEMENTED:
            return {ErrorCode::kUnsupported,
                    fmt::format("{} does not know protocol {}.{}; install the same version on all "
                                "hosts",
                                peer, kProtocolMajor, kProtocolMinor)};
        default: break;
    }
    for (const auto& [ours, code] : kCodes) {
        if (code == status.error_code()) {
            return {ours, fmt::format("{}: {}", peer, wire_text(status.error_message()))};
        }
    }
    return {ErrorCode::kUnavailable,
            fmt::format("{}: {}", peer, wire_text(status.error_message()))};
}

std::string describe_break(const grpc::Status& status) {
    if (status.ok()) {
        return "the other end closed the stream";
    }
    std::string text = wire_text(status.error_message());
    return text.empty() ? "the connection broke" : text;
}

}  // namespace shardline
