#include "server/connection_server.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "base/log.hpp"
#include "server/listen_socket.hpp"
#include "server/openai_response.hpp"

namespace shardline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSpareThreads = 8;
constexpr std::chrono::milliseconds kClosingTime{1000};  // for the client to read the last bytes
constexpr const char* kHeaderEnd = "\r\n\r\n";
thread_local Connection t_connection;

// Written by the polling thread, past httplib.
std::string busy_response() {
    ApiError error = queue_full();
    error.status = 503;
    error.message = "Too many requests are being served; try again in a moment.";
    error.code = "busy";
    const std::string body = to_text(error_json(error));
    return fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: {}\r\n"
        "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
        error.retry_after_s, body.size(), body);
}

}  // namespace

ConnectionServer::ConnectionServer(const ConnectionLimits& limits) : limits_(limits) {
    set_keep_alive_timeout(
        std::chrono::duration_cast<std::chrono::seconds>(limits.idle_time).count());
    set_payload_max_length(limits.max_body_bytes);
}

ConnectionServer::~ConnectionServer() {
    stop_all();
}

Connection& ConnectionServer::current() {
    return t_connection;
}

int ConnectionServer::start(const std::string& host, int port, bool loopback_only) {
    listener_ = open_listen_socket(host, port, loopback_only);
    svr_sock_ = listener_;  // httplib takes an absent one for a shutdown and cuts streams short
    wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    SHARDLINE_INVARIANT(wake_ >= 0);
    poller_ = std::thread([this] { poll_loop(); });
    return bound_port(listener_);
}

void ConnectionServer::stop_all() {
    if (stopping_.exchange(true) || !poller_.joinable()) {
        return;
    }
    eventfd_write(wake_, 1);
    poller_.join();
    std::vector<std::thread> workers;
    {
        std::lock_guard lock(mutex_);
        workers.swap(workers_);
    }
    work_there_.notify_all();
    for (std::thread& worker : workers) {
        worker.join();
    }
    std::lock_guard lock(mutex_);
    for (const Waiting& connection : returned_) {
        close_socket(connection.socket);
    }
    for (const Waiting& connection : work_) {
        close_socket(connection.socket);
    }
    svr_sock_ = INVALID_SOCKET;
    ::close(listener_);
    ::close(wake_);
}

void ConnectionServer::close_socket(int socket) {
    ::close(socket);
    --num_open_;
}

void ConnectionServer::poll_loop() {
    std::vector<Waiting> waiting;
    while (!stopping_) {
        poll_once(waiting);
    }
    for (const Waiting& connection : waiting) {
        close_socket(connection.socket);
    }
}

void ConnectionServer::poll_once(std::vector<Waiting>& waiting) {
    constexpr std::chrono::milliseconds kTick{250};  // how exactly deadlines are kept
    std::vector<pollfd> entries;
    entries.reserve(waiting.size() + 2);
    entries.push_back({listener_, POLLIN, 0});
    entries.push_back({wake_, POLLIN, 0});
    for (const Waiting& connection : waiting) {
        entries.push_back({connection.socket, POLLIN, 0});
    }
    if (poll(entries.data(), entries.size(), static_cast<int>(kTick.count())) < 0) {
        return;  // interrupted
    }
    const auto now = Clock::now();
    std::vector<Waiting> kept;
    kept.reserve(waiting.size());
    for (std::size_t i = 0; i < waiting.size(); ++i) {
        const bool stays = entries[i + 2].revents == 0 || advance(waiting[i]);
        if (stays && now >= waiting[i].deadline) {
            close_socket(waiting[i].socket);
        } else if (stays) {
            kept.push_back(std::move(waiting[i]));
        }
    }
    waiting.swap(kept);
    if (entries[1].revents != 0) {
        take_returned(waiting);
    }
    if (entries[0].revents != 0) {
        accept_new(waiting);
    }
}

void ConnectionServer::accept_new(std::vector<Waiting>& waiting) {
    constexpr int kMaxAtOnce = 64;  // so that those already here get their turn
    for (int i = 0; i < kMaxAtOnce; ++i) {
        const int socket = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        const bool out_of_descriptors = socket < 0 && (errno == EMFILE || errno == ENFILE);
        if (socket < 0 && !out_of_descriptors) {
            return;  // none left, or one that broke before it was taken
        }
        if (out_of_descriptors || num_open_ >= limits_.max_connections) {
            // The one that would time out first has been silent for longest.
            const auto idlest = std::min_element(
                waiting.begin(), waiting.end(),
                [](const auto& a, const auto& b) { return a.deadline < b.deadline; });
            if (idlest != waiting.end()) {
                close_socket(idlest->socket);
                waiting.erase(idlest);
            } else if (out_of_descriptors) {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
                return;
            }
        }
        if (socket < 0) {
            continue;
        }
        const int on = 1;
        setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ++num_open_;
        Waiting connection;
        connection.socket = socket;
        connection.deadline = Clock::now() + limits_.header_time;
        if (num_open_ > limits_.max_connections) {
            refuse(connection);
        }
        waiting.push_back(std::move(connection));
    }
}

void ConnectionServer::take_returned(std::vector<Waiting>& waiting) {
    eventfd_t count = 0;
    eventfd_read(wake_, &count);
    std::vector<Waiting> returned;
    {
        std::lock_guard lock(mutex_);
        returned.swap(returned_);
    }
    for (Waiting& connection : returned) {
        waiting.push_back(std::move(connection));
    }
}

bool ConnectionServer::advance(Waiting& connection) {
    char chunk[4096];
    const ssize_t count = recv(connection.socket, chunk, sizeof chunk, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    if (count <= 0) {
        close_socket(connection.socket);
        return false;
    }
    if (connection.phase == Phase::kClosing) {
        return true;  // bytes nobody wants: read so that the response is not lost to a reset
    }
    if (connection.phase != Phase::kHeaders) {
        connection.phase = Phase::kHeaders;
        connection.deadline = Clock::now() + limits_.header_time;
    }
    connection.received.append(chunk, static_cast<std::size_t>(count));
    const bool complete = connection.received.find(kHeaderEnd) != std::string::npos;
    if (!complete && connection.received.size() <= limits_.max_header_bytes) {
        return true;
    }
    if (!complete) {
        // Never parsed: httplib would read on for the end that does not come.
        connection.received = "GET / HTTP/0.0\r\n\r\n";
    }
    dispatch(connection);
    return connection.phase == Phase::kClosing;
}

void ConnectionServer::dispatch(Waiting& connection) {
    {
        std::lock_guard lock(mutex_);
        const std::size_t num_threads = workers_.size();
        if (num_busy_ < limits_.max_threads + kSpareThreads) {
            ++num_busy_;
            connection.overloaded = num_busy_ > limits_.max_threads;
            work_.push_back(std::move(connection));
            if (num_busy_ > num_threads) {
                workers_.emplace_back([this] { worker_loop(); });
            }
            work_there_.notify_one();
            return;
        }
    }
    refuse(connection);
}

void ConnectionServer::refuse(Waiting& connection) {
    const std::string response = busy_response();
    static_cast<void>(
        send(connection.socket, response.data(), response.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    shutdown(connection.socket, SHUT_WR);
    connection.phase = Phase::kClosing;
    connection.deadline = Clock::now() + kClosingTime;
}

void ConnectionServer::worker_loop() {
    for (;;) {
        Waiting connection;
        {
            std::unique_lock lock(mutex_);
            work_there_.wait(lock, [this] { return stopping_ || !work_.empty(); });
            if (work_.empty() || stopping_) {
                return;
            }
            connection = std::move(work_.front());
            work_.pop_front();
        }
        serve(std::move(connection));
        std::lock_guard lock(mutex_);
        --num_busy_;
    }
}

void ConnectionServer::serve(Waiting connection) {
    SocketStream stream(connection.socket, std::move(connection.received), stopping_);
    Outcome outcome = Outcome::kKeep;
    do {
        t_connection = {&stream, connection.overloaded, false};
        outcome = serve_one(stream);
    } while (outcome == Outcome::kKeep && stream.has_headers());
    t_connection = {};
    connection.received = stream.take_rest();
    const auto now = Clock::now();
    if (outcome == Outcome::kDrop) {
        close_socket(connection.socket);
        return;
    }
    if (outcome == Outcome::kClose) {
        shutdown(connection.socket, SHUT_WR);
        connection.phase = Phase::kClosing;
        connection.deadline = now + kClosingTime;
    } else if (connection.received.empty()) {
        connection.phase = Phase::kIdle;
        connection.deadline = now + limits_.idle_time;
    } else {
        connection.phase = Phase::kHeaders;
        connection.deadline = now + limits_.header_time;
    }
    give_back(std::move(connection));
}

ConnectionServer::Outcome ConnectionServer::serve_one(SocketStream& stream) {
    // Chunked bodies carry up to five bytes of framing for one of content.
    const std::size_t budget = limits_.max_header_bytes + 6 * limits_.max_body_bytes;
    stream.begin_request(limits_.body_time, budget, limits_.write_stall);
    bool close_asked = false;
    try {
        const bool served =
            process_request(stream, false, close_asked, [](httplib::Request& request) {
                // A part of an answer is of no use to anyone.
                request.ranges.clear();
                // httplib does not read the body of these: it must not pass for a next request.
                const bool has_body =
                    request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
                t_connection.close_after = has_body && request.method != "POST";
            });
        if (!served) {
            return Outcome::kDrop;
        }
        const bool close = close_asked || t_connection.close_after || stopping_;
        return close ? Outcome::kClose : Outcome::kKeep;
    } catch (const std::exception& error) {
        room_logger("server")->error("a response was cut short: {}", error.what());
        return Outcome::kDrop;
    }
}

void ConnectionServer::give_back(Waiting connection) {
    {
        std::lock_guard lock(mutex_);
        returned_.push_back(std::move(connection));
    }
    eventfd_write(wake_, 1);
}

}  // namespace shardline
