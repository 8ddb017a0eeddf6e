#include "server/socket_stream.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace shardline {

SocketStream::SocketStream(int socket, std::string received, const std::atomic<bool>& stopping)
    : socket_(socket), stopping_(stopping), received_(std::move(received)) {}

void SocketStream::begin_request(std::chrono::milliseconds read_time, std::size_t max_bytes,
                                 std::chrono::milliseconds write_stall) {
    read_deadline_ = Clock::now() + read_time;
    write_deadline_ = Clock::time_point::max();
    budget_bytes_ = max_bytes;
    write_stall_ = write_stall;
}

bool SocketStream::peer_gone() const {
    // POLLRDHUP sees a close even behind bytes that nobody has read yet (a pipelined request).
    pollfd entry{socket_, POLLRDHUP, 0};
    return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

std::string SocketStream::take_rest() {
    std::string rest = received_.substr(consumed_);
    received_.clear();
    consumed_ = 0;
    return rest;
}

bool SocketStream::wait_for(short events, Clock::time_point deadline) const {
    constexpr std::chrono::milliseconds kSlice{200};  // how soon `stopping_` is seen
    while (!stopping_) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        if (left.count() <= 0) {
            return false;
        }
        pollfd entry{socket_, events, 0};
        const int ready = poll(&entry, 1, static_cast<int>(std::min(left, kSlice).count()));
        if (ready > 0) {
            return true;  // broken sockets too: the call that follows reports it
        }
        if (ready < 0 && errno != EINTR) {
            return false;
        }
    }
    return false;
}

bool SocketStream::fill() {
    constexpr std::size_t kChunkBytes = 16384;
    received_.resize(kChunkBytes);
    consumed_ = 0;
    for (;;) {
        const ssize_t count = recv(socket_, received_.data(), kChunkBytes, MSG_DONTWAIT);
        if (count > 0) {
            received_.resize(static_cast<std::size_t>(count));
            return true;
        }
        const bool would_wait = count < 0 && (errno == EAGAIN || errno == EINTR);
        if (!would_wait || !wait_for(POLLIN, read_deadline_)) {
            received_.clear();
            return false;
        }
    }
}

bool SocketStream::is_readable() const {
    return consumed_ < received_.size() || !peer_gone();
}

bool SocketStream::is_writable() const {
    return !peer_gone();
}

ssize_t SocketStream::read(char* data, size_t size) {
    if (consumed_ == received_.size() && !fill()) {
        return -1;
    }
    const std::size_t count = std::min(size, received_.size() - consumed_);
    if (count > budget_bytes_) {
        return -1;
    }
    budget_bytes_ -= count;
    std::memcpy(data, received_.data() + consumed_, count);
    consumed_ += count;
    return static_cast<ssize_t>(count);
}

ssize_t SocketStream::write(const char* data, size_t size) {
    for (;;) {
        const ssize_t count = send(socket_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count >= 0) {
            return count;
        }
        const auto deadline = std::min(Clock::now() + write_stall_, write_deadline_);
        if ((errno != EAGAIN && errno != EINTR) || !wait_for(POLLOUT, deadline)) {
            return -1;
        }
    }
}

// Addresses are in no answer and no log; httplib merely copies them into its request.
void SocketStream::get_remote_ip_and_port(std::string& ip, int& port) const {
    ip.clear();
    port = 0;
}

void SocketStream::get_local_ip_and_port(std::string& ip, int& port) const {
    ip.clear();
    port = 0;
}

// httplib only compares it with FD_SETSIZE, for a select() that this stream does not do.
socket_t SocketStream::socket() const {
    return INVALID_SOCKET;
}

}  // namespace shardline
