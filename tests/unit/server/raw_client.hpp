#pragma once

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shardline {

struct RawResponse {
    int status = 0;                              // 0: nothing came
    std::map<std::string, std::string> headers;  // lower-case names
    std::string body;                            // chunks joined
    bool complete = false;                       // the body ended as HTTP says

    nlohmann::json json() const { return nlohmann::json::parse(body); }
    nlohmann::json error() const { return json().at("error"); }
    // The data of each server-sent event.
    std::vector<std::string> events() const;
    // All events but [DONE], parsed.
    std::vector<nlohmann::json> chunks() const;
};

// A client that does with its socket what tests need: half a request, a close in mid-answer.
class RawClient final {
public:
    explicit RawClient(int port);
    ~RawClient();
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;

    bool send_bytes(const std::string& bytes);
    bool send_request(const std::string& method, const std::string& path,
                      const std::string& body = "", const std::string& extra_headers = "");
    RawResponse read_response(std::chrono::milliseconds timeout = std::chrono::seconds(20));
    // Reads until `text` has come; false on timeout or close.
    bool read_until(const std::string& text,
                    std::chrono::milliseconds timeout = std::chrono::seconds(20));
    const std::string& received() const { return received_; }  // and not taken yet
    bool closed_by_server(std::chrono::milliseconds timeout);
    void close();
    void reset();  // as a machine that vanishes: RST

private:
    bool fill(std::chrono::steady_clock::time_point deadline);  // false: closed or too late
    std::string read_body(const RawResponse& response,
                          std::chrono::steady_clock::time_point deadline, bool& complete);
    std::string read_chunks(std::chrono::steady_clock::time_point deadline, bool& complete);
    bool fill_to(std::size_t size, std::chrono::steady_clock::time_point deadline);
    bool take_line(std::string& line, std::chrono::steady_clock::time_point deadline);

    int socket_ = -1;
    std::string received_;
};

RawResponse http(int port, const std::string& method, const std::string& path,
                 const std::string& body = "", const std::string& extra_headers = "");

}  // namespace shardline
