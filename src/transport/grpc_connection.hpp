#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "security/credentials.hpp"

// How connections are made: mutual TLS, keepalive, limits, and the translation of failures.
// Internal to the room.

namespace grpc {
class Channel;
class ClientContext;
class ServerBuilder;
class ServerCredentials;
class Status;
}  // namespace grpc

namespace shardline {

// Control connections carry heartbeats and find a lost peer fast. Data connections carry
// megabytes; on a slow network an answer to a ping may queue behind them, so they are patient.
enum class Purpose { kControl, kData };

// A connection of its own, never shared with another channel. Dials at the first call.
std::shared_ptr<grpc::Channel> open_channel(const std::string& address,
                                            const Credentials& credentials, Purpose purpose,
                                            std::size_t max_receive_bytes);

std::shared_ptr<grpc::ServerCredentials> make_server_credentials(const Credentials& credentials);
void configure_server(grpc::ServerBuilder& builder);

void set_deadline(grpc::ClientContext& context, std::chrono::milliseconds timeout);

// Our own errors travel as a status and come out again as the same code and message.
grpc::Status to_status(const Error& error);

// `peer` is how messages name the other end. Statuses that gRPC itself makes (nobody there, TLS
// refused, time out) say little, so then the connection is looked at once more with OpenSSL.
Error to_error(const grpc::Status& status, const std::string& peer, const std::string& address,
               const Credentials& credentials);

// For a stream that had been open: one sentence, without looking again.
std::string describe_break(const grpc::Status& status);

}  // namespace shardline
