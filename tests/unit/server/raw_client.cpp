#include "unit/server/raw_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace shardline {

using Clock = std::chrono::steady_clock;

std::vector<std::string> RawResponse::events() const {
    const std::string prefix = "data: ";
    std::vector<std::string> events;
    std::size_t at = 0;
    while (at < body.size()) {
        const auto end = body.find("\n\n", at);
        if (end == std::string::npos) {
            throw std::runtime_error("an event is cut short: " + body.substr(at));
        }
        const std::string event = body.substr(at, end - at);
        if (event.rfind(prefix, 0) == 0) {
            events.push_back(event.substr(prefix.size()));
        } else if (event.rfind(':', 0) != 0) {
            throw std::runtime_error("not an event: " + event);
        }
        at = end + 2;
    }
    return events;
}

std::vector<nlohmann::json> RawResponse::chunks() const {
    std::vector<nlohmann::json> chunks;
    for (const std::string& event : events()) {
        if (event != "[DONE]") {
            chunks.push_back(nlohmann::json::parse(event));
        }
    }
    return chunks;
}

RawClient::RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const void* raw = &address;
    if (connect(socket_, static_cast<const sockaddr*>(raw), sizeof address) != 0) {
        ::close(socket_);
        throw std::runtime_error("cannot connect");
    }
}

RawClient::~RawClient() {
    close();
}

bool RawClient::send_bytes(const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
        const ssize_t count = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (count <= 0) {
            return false;
        }
        sent += static_cast<std::size_t>(count);
    }
    return true;
}

bool RawClient::send_request(const std::string& method, const std::string& path,
                             const std::string& body, const std::string& extra_headers) {
    std::string request = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n";
    if (method == "POST") {
        request +=
            "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
            "\r\n";
    }
    return send_bytes(request + extra_headers + "\r\n" + body);
}

bool RawClient::fill(Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{socket_, POLLIN, 0};
    if (left <= 0 || poll(&entry, 1, static_cast<int>(left)) <= 0) {
        return false;
    }
    char chunk[16384];
    const ssize_t count = recv(socket_, chunk, sizeof chunk, 0);
    if (count <= 0) {
        return false;
    }
    received_.append(chunk, static_cast<std::size_t>(count));
    return true;
}

bool RawClient::fill_to(std::size_t size, Clock::time_point deadline) {
    while (received_.size() < size) {
        if (!fill(deadline)) {
            return false;
        }
    }
    return true;
}

bool RawClient::take_line(std::string& line, Clock::time_point deadline) {
    while (received_.find("\r\n") == std::string::npos) {
        if (!fill(deadline)) {
            return false;
        }
    }
    const auto end = received_.find("\r\n");
    line = received_.substr(0, end);
    received_.erase(0, end + 2);
    return true;
}

RawResponse RawClient::read_response(std::chrono::milliseconds timeout) {
    const auto deadline = Clock::now() + timeout;
    RawResponse response;
    std::string line;
    if (!take_line(line, deadline) || line.size() < 12) {
        return response;
    }
    response.status = std::stoi(line.substr(9, 3));
    while (take_line(line, deadline) && !line.empty()) {
        const auto colon = line.find(": ");
        std::string name = line.substr(0, colon);
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        response.headers[name] = line.substr(colon + 2);
    }
    response.body = read_body(response, deadline, response.complete);
    return response;
}

std::string RawClient::read_body(const RawResponse& response, Clock::time_point deadline,
                                 bool& complete) {
    if (response.headers.count("transfer-encoding") > 0) {
        return read_chunks(deadline, complete);
    }
    const auto length = response.headers.find("content-length");
    const std::size_t size = length == response.headers.end() ? 0 : std::stoul(length->second);
    complete = fill_to(size, deadline);
    const std::string body = received_.substr(0, size);
    received_.erase(0, body.size());
    return body;
}

std::string RawClient::read_chunks(Clock::time_point deadline, bool& complete) {
    std::string body;
    std::string line;
    complete = false;
    while (take_line(line, deadline)) {
        const std::size_t size = std::stoul(line, nullptr, 16);
        if (!fill_to(size + 2, deadline)) {
            break;
        }
        body += received_.substr(0, size);
        received_.erase(0, size + 2);
        if (size == 0) {
            complete = true;
            break;
        }
    }
    return body;
}

bool RawClient::read_until(const std::string& text, std::chrono::milliseconds timeout) {
    const auto deadline = Clock::now() + timeout;
    while (received_.find(text) == std::string::npos) {
        if (!fill(deadline)) {
            return false;
        }
    }
    return true;
}

bool RawClient::closed_by_server(std::chrono::milliseconds timeout) {
    const auto deadline = Clock::now() + timeout;
    while (fill(deadline)) {
    }
    return Clock::now() < deadline;
}

void RawClient::close() {
    if (socket_ >= 0) {
        ::close(socket_);
        socket_ = -1;
    }
}

void RawClient::reset() {
    const linger at_once{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
}

RawResponse http(int port, const std::string& method, const std::string& path,
                 const std::string& body, const std::string& extra_headers) {
    RawClient client(port);
    client.send_request(method, path, body, extra_headers);
    return client.read_response();
}

}  // namespace shardline
