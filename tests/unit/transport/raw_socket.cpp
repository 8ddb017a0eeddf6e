#include "unit/transport/raw_socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace shardline {
namespace {

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

bool wait_readable(int descriptor, std::chrono::milliseconds timeout) {
    pollfd entry{descriptor, POLLIN, 0};
    return poll(&entry, 1, static_cast<int>(timeout.count())) > 0;
}

}  // namespace

RawSocket::RawSocket(std::uint16_t port) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    const sockaddr_in address = loopback(port);
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    if (connect(descriptor_, generic, sizeof address) != 0) {
        close(std::exchange(descriptor_, -1));
    }
}

RawSocket::~RawSocket() {
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
}

void RawSocket::send(const std::string& bytes) const {
    [[maybe_unused]] const auto sent =
        ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

bool RawSocket::read_to_end(std::chrono::milliseconds timeout, std::string* received) const {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    std::array<char, 4096> buffer{};
    while (true) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0 || !wait_readable(descriptor_, left)) {
            return false;
        }
        const auto count = recv(descriptor_, buffer.data(), buffer.size(), 0);
        if (count <= 0) {
            return true;
        }
        if (received != nullptr) {
            received->append(buffer.data(), static_cast<std::size_t>(count));
        }
    }
}

RawListener::RawListener(std::string answer) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = loopback(0);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    if (bind(descriptor_, generic, size) != 0 || listen(descriptor_, 16) != 0 ||
        getsockname(descriptor_, generic, &size) != 0) {
        std::abort();
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this, answer = std::move(answer)](const std::stop_token& stopping) {
        std::vector<RawSocket> open;
        while (!stopping.stop_requested()) {
            if (!wait_readable(descriptor_, std::chrono::milliseconds(50))) {
                continue;
            }
            RawSocket client(accept(descriptor_, nullptr, nullptr));
            if (!answer.empty()) {
                wait_readable(client.descriptor(), std::chrono::milliseconds(1000));
                client.send(answer);
                continue;
            }
            open.push_back(std::move(client));
        }
    });
}

RawListener::~RawListener() {
    thread_.request_stop();
    thread_.join();
    close(descriptor_);
}

}  // namespace shardline
