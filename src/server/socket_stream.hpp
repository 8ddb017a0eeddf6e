#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

namespace shardline {

// One accepted socket as cpp-httplib reads and writes it, with what its own stream lacks: a
// deadline and a byte budget for a whole request, a bound on a reader that never reads, and a look
// at whether the client is still there. Does not own the socket. Used by one thread at a time.
class SocketStream final : public httplib::Stream {
public:
    using Clock = std::chrono::steady_clock;

    // `received` holds bytes that were read ahead. `stopping` ends every wait when it turns true.
    SocketStream(int socket, std::string received, const std::atomic<bool>& stopping);

    // Bounds on the next request: when its last byte must have come, how many bytes may come in
    // all, and how long a write may wait without the client taking a byte.
    void begin_request(std::chrono::milliseconds read_time, std::size_t max_bytes,
                       std::chrono::milliseconds write_stall);
    // Writes fail from then on, however steadily a client sips.
    void set_write_deadline(Clock::time_point deadline) { write_deadline_ = deadline; }

    // The client has closed its end, or the connection broke. Never waits.
    bool peer_gone() const;

    // The next request's headers have been read ahead whole.
    bool has_headers() const { return received_.find("\r\n\r\n", consumed_) != std::string::npos; }
    // Bytes read ahead that belong to the next request.
    std::string take_rest();

    bool is_readable() const override;
    bool is_writable() const override;
    ssize_t read(char* data, size_t size) override;
    ssize_t write(const char* data, size_t size) override;
    void get_remote_ip_and_port(std::string& ip, int& port) const override;
    void get_local_ip_and_port(std::string& ip, int& port) const override;
    socket_t socket() const override;

private:
    bool wait_for(short events, Clock::time_point deadline) const;
    bool fill();

    const int socket_;
    const std::atomic<bool>& stopping_;
    std::string received_;  // read ahead; the first `consumed_` bytes are used up
    std::size_t consumed_ = 0;
    Clock::time_point read_deadline_;
    Clock::time_point write_deadline_;
    std::size_t budget_bytes_ = 0;
    std::chrono::milliseconds write_stall_{0};
};

}  // namespace shardline
