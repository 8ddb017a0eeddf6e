#include "server/listen_socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.hpp"

namespace shardline {
namespace {

constexpr int kBacklog = 511;

bool is_loopback(const sockaddr* address) {
    constexpr std::uint32_t kLoopbackNet = 127;
    if (address->sa_family == AF_INET) {
        sockaddr_in v4{};
        std::memcpy(&v4, address, sizeof v4);
        return (ntohl(v4.sin_addr.s_addr) >> 24U) == kLoopbackNet;
    }
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

// -1 with errno set when it cannot be bound.
int listen_on(const addrinfo& address) {
    const int socket =
        ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket < 0) {
        return -1;
    }
    // Not SO_REUSEPORT: a second server on the same port must fail, not share the requests.
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(socket, address.ai_addr, address.ai_addrlen) == 0 && listen(socket, kBacklog) == 0) {
        return socket;
    }
    const int reason = errno;
    close(socket);
    errno = reason;
    return -1;
}

}  // namespace

int open_listen_socket(const std::string& host, int port, bool loopback_only) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int failure = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (failure != 0) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("cannot listen on '{}': {}", host, gai_strerror(failure)));
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
    int reason = 0;
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
        if (loopback_only && !is_loopback(entry->ai_addr)) {
            throw Error(ErrorCode::kPermissionDenied,
                        fmt::format("'{}' can be reached from other machines, so it needs a key: "
                                    "give one with --api-key, or listen on 127.0.0.1",
                                    host));
        }
        const int socket = listen_on(*entry);
        if (socket >= 0) {
            return socket;
        }
        reason = errno;
    }
    throw Error(ErrorCode::kUnavailable,
                fmt::format("cannot listen on {}:{}: {}", host, port, std::strerror(reason)));
}

int bound_port(int socket) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    void* raw = &address;
    if (getsockname(socket, static_cast<sockaddr*>(raw), &length) != 0) {
        return -1;
    }
    if (address.ss_family == AF_INET6) {
        sockaddr_in6 v6{};
        std::memcpy(&v6, &address, sizeof v6);
        return ntohs(v6.sin6_port);
    }
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    return ntohs(v4.sin_port);
}

}  // namespace shardline
