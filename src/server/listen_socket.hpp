#pragma once

#include <string>

namespace shardline {

// A socket that listens on `host` ("127.0.0.1", "localhost", "::1", "0.0.0.0", ...) and `port`
// (0: any free one). Throws Error naming host and port when the name does not resolve or the port
// is taken; with `loopback_only` also when the address can be reached from other machines.
int open_listen_socket(const std::string& host, int port, bool loopback_only);

int bound_port(int socket);

}  // namespace shardline
