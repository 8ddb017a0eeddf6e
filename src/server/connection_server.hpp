#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/socket_stream.hpp"

namespace shardline {

struct ConnectionLimits {
    std::size_t max_connections = 512;             // open at a time; more push the idlest out
    std::size_t max_threads = 256;                 // requests served at a time
    std::size_t max_header_bytes = 32768;          // request line and headers
    std::size_t max_body_bytes = 8U << 20;         // as sent
    std::chrono::milliseconds header_time{10000};  // to send a request's headers, or the first
    std::chrono::milliseconds idle_time{60000};    // between two requests
    std::chrono::milliseconds body_time{60000};    // to send a request's body
    std::chrono::milliseconds write_stall{20000};  // a client that takes no byte for so long
};

// The connection at hand, for routes.
struct Connection {
    SocketStream* stream = nullptr;
    bool overloaded = false;   // served by a spare thread: say so, do not start work
    bool close_after = false;  // set when a body was left unread
};

// cpp-httplib parses, routes and writes; connections are kept here, since its own loop spends a
// thread on each one, tells a route nothing of its socket, and waits without bound for what a
// client sends.
//
//   accept -> waiting (one thread polls all: silent and idle ones cost a descriptor each)
//          -> headers complete -> a worker thread -> response -> waiting again, or closing
//
// Above max_threads a few spare threads still answer (health, and 503 for the rest); above those,
// the polling thread itself sends 503. Routes find their Connection by current().
class ConnectionServer final : public httplib::Server {
public:
    explicit ConnectionServer(const ConnectionLimits& limits);
    ~ConnectionServer() override;

    // Binds and begins to serve; the bound port. Throws Error naming host and port when it cannot,
    // or when `loopback_only` and the host is not.
    int start(const std::string& host, int port, bool loopback_only);
    // Waits for the routes to return; they see stopping(). Idempotent.
    void stop_all();

    const std::atomic<bool>& stopping() const { return stopping_; }
    static Connection& current();

private:
    enum class Phase { kSilent, kHeaders, kIdle, kClosing };
    enum class Outcome {
        kKeep,
        kClose,  // once the client has read what it was sent
        kDrop,   // it has left, or reads nothing
    };

    struct Waiting {
        int socket = -1;
        Phase phase = Phase::kSilent;
        std::string received;
        std::chrono::steady_clock::time_point deadline;
        bool overloaded = false;  // dispatched to a spare thread
    };

    void poll_loop();
    void poll_once(std::vector<Waiting>& waiting);
    void accept_new(std::vector<Waiting>& waiting);
    void take_returned(std::vector<Waiting>& waiting);
    bool advance(Waiting& connection);  // false: it left the waiting ones
    void dispatch(Waiting& connection);
    void refuse(Waiting& connection);

    void worker_loop();
    void serve(Waiting connection);
    Outcome serve_one(SocketStream& stream);
    void give_back(Waiting connection);
    void close_socket(int socket);

    const ConnectionLimits limits_;
    int listener_ = -1;
    int wake_ = -1;  // eventfd: a connection was given back, or stop
    std::atomic<bool> stopping_{false};
    std::atomic<std::size_t> num_open_{0};
    std::thread poller_;

    std::mutex mutex_;
    std::condition_variable work_there_;
    std::deque<Waiting> work_;          // guarded by mutex_
    std::vector<Waiting> returned_;     // guarded by mutex_
    std::vector<std::thread> workers_;  // guarded by mutex_
    std::size_t num_busy_ = 0;          // guarded by mutex_; work_ included
};

}  // namespace shardline
