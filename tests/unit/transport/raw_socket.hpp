#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace shardline {

// A plain TCP connection to 127.0.0.1, for what no library would send.
class RawSocket final {
public:
    explicit RawSocket(std::uint16_t port);
    explicit RawSocket(int descriptor) : descriptor_(descriptor) {}
    RawSocket(RawSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    RawSocket& operator=(RawSocket&&) = delete;
    ~RawSocket();

    bool connected() const { return descriptor_ >= 0; }
    int descriptor() const { return descriptor_; }
    void send(const std::string& bytes) const;

    // What comes until the other end closes; false when it does not within `timeout`.
    bool read_to_end(std::chrono::milliseconds timeout, std::string* received = nullptr) const;

private:
    int descriptor_ = -1;
};

// Accepts connections on 127.0.0.1 and answers each with `answer` after the first bytes have come;
// an empty answer leaves the connection open and silent.
class RawListener final {
public:
    explicit RawListener(std::string answer);
    ~RawListener();

    std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

private:
    int descriptor_ = -1;
    std::uint16_t port_ = 0;
    std::jthread thread_;
};

}  // namespace shardline
