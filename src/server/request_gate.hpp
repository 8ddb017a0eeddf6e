#pragma once

#include <httplib.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.hpp"

namespace shardline {

struct ServerOptions;

// Everything that is decided before a route runs: who may ask, from which web page, whether there
// is such a path and method, and how much body may come. Thread-safe after attach().
class RequestGate final {
public:
    explicit RequestGate(const ServerOptions& options);

    // Puts the gate in front of the server's routes, CORS headers behind them, and an OpenAI error
    // object wherever httplib itself would answer without a body.
    void attach(httplib::Server& server) const;

    // The body of a POST within the limit; else the error has been written.
    std::optional<std::string> read_body(const httplib::Request& request,
                                         httplib::Response& response,
                                         const httplib::ContentReader& reader) const;

    // Whose request this is, by its API key; 0 where none is needed, nothing when it has none of
    // ours.
    std::optional<std::uint64_t> owner(const httplib::Request& request) const;

private:
    std::optional<ApiError> refusal(const httplib::Request& request) const;
    std::optional<ApiError> path_refusal(const httplib::Request& request) const;
    std::optional<ApiError> body_refusal(const httplib::Request& request) const;
    bool may_use(const std::string& origin) const;
    void add_cors(const httplib::Request& request, httplib::Response& response) const;

    const std::vector<std::string> api_keys_;
    const std::size_t max_body_bytes_;
};

void write_error(httplib::Response& response, const ApiError& error);
ApiError unknown_model(const std::string& asked, const std::string& served);

}  // namespace shardline
