#include "server/request_gate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/log.hpp"
#include "security/credentials.hpp"
#include "server/connection_server.hpp"
#include "server/http_server.hpp"
#include "server/openai_response.hpp"

namespace shardline {
namespace {

constexpr const char* kModelPrefix = "/v1/models/";

ApiError refusal_of(int status, const std::string& message, const std::string& code) {
    ApiError error = bad_request(message, std::nullopt, code);
    error.status = status;
    return error;
}

// The method a path takes; empty for an unknown path.
std::string_view method_of(const std::string& path) {
    if (path == "/v1/chat/completions" || path == "/v1/completions") {
        return "POST";
    }
    if (path == "/v1/models" || path == "/health" || path == "/health/live" ||
        path == "/health/ready" || path == "/metrics" || path.starts_with(kModelPrefix)) {
        return "GET";
    }
    return "";
}

// "http://localhost:3000" -> "localhost"; empty when it is no such thing ("null").
std::string host_of(const std::string& origin) {
    const auto scheme = origin.find("://");
    if (scheme == std::string::npos) {
        return "";
    }
    const std::string rest = origin.substr(scheme + 3);
    if (rest.starts_with('[')) {
        return rest.substr(0, rest.find(']') + 1);
    }
    return rest.substr(0, rest.find(':'));
}

bool is_header_list(const std::string& value) {
    constexpr std::size_t kMaxBytes = 1024;
    return value.size() <= kMaxBytes && std::all_of(value.begin(), value.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == ',' || c == ' ';
           });
}

std::string message_for(int status) {
    switch (status) {
        case 413: return "The body is larger than this server takes.";
        case 414: return "The request's address is too long.";
        case 416: return "Ranges of an answer are not served.";
        default: return "The request is not valid HTTP, or longer than this server takes.";
    }
}

}  // namespace

void write_error(httplib::Response& response, const ApiError& error) {
    response.status = error.status;
    if (error.retry_after_s > 0) {
        response.set_header("Retry-After", std::to_string(error.retry_after_s));
    }
    response.set_content(to_text(error_json(error)), "application/json");
}

ApiError unknown_model(const std::string& asked, const std::string& served) {
    ApiError error =
        refusal_of(404, fmt::format("There is no model '{}' here; '{}' is served.", asked, served),
                   "model_not_found");
    error.param = "model";
    return error;
}

RequestGate::RequestGate(const ServerOptions& options)
    : api_keys_(options.api_keys), max_body_bytes_(options.connections.max_body_bytes) {}

void RequestGate::attach(httplib::Server& server) const {
    using Outcome = httplib::Server::HandlerResponse;
    server.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
            if (const auto error = refusal(request)) {
                if (error->status == 405) {
                    response.set_header("Allow", std::string(method_of(request.path)));
                }
                if (error->status == 401) {
                    response.set_header("WWW-Authenticate", "Bearer");
                }
                write_error(response, *error);
            } else if (request.method == "OPTIONS") {
                response.status = 204;
            } else {
                return Outcome::Unhandled;
            }
            if (request.method == "POST") {
                // Its body has not been read and must not pass for the next request.
                ConnectionServer::current().close_after = true;
                response.set_header("Connection", "close");
            }
            return Outcome::Handled;
        });
    server.set_post_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
            add_cors(request, response);
        });
    const httplib::Server::Handler on_bare_error = [](const httplib::Request&,
                                                      httplib::Response& response) {
        if (response.body.empty()) {
            const int status = response.status;
            write_error(response, refusal_of(status, message_for(status), "invalid_http"));
            ConnectionServer::current().close_after = true;
            response.set_header("Connection", "close");
        }
    };
    server.set_error_handler(on_bare_error);
    server.set_logger([](const httplib::Request& request, const httplib::Response& response) {
        room_logger("server")->debug("{} {} {}", request.method, request.path, response.status);
    });
    server.set_exception_handler(
        [](const httplib::Request&, httplib::Response& response, const std::exception_ptr& thrown) {
            ApiError error;
            try {
                std::rethrow_exception(thrown);
            } catch (const RequestError& refused) {
                error = refused.error();
            } catch (const Error& failed) {
                error = to_api_error(failed.code(), failed.what());
            } catch (const std::exception& failed) {
                error = to_api_error(ErrorCode::kInternal, failed.what());
            } catch (...) {
                error = to_api_error(ErrorCode::kInternal, "unknown failure");
            }
            if (error.status >= 500 && error.retry_after_s == 0) {
                room_logger("server")->error("a request failed: {}", error.message);
            }
            write_error(response, error);
        });
}

std::optional<ApiError> RequestGate::refusal(const httplib::Request& request) const {
    const std::string origin = request.get_header_value("Origin");
    if (!may_use(origin)) {
        return refusal_of(403,
                          "Web pages of other hosts may not use this server, since it asks for no "
                          "key; start it with --api-key to allow them.",
                          "origin_refused");
    }
    if (request.method == "OPTIONS") {
        return std::nullopt;
    }
    const bool is_health = request.path.starts_with("/health");
    if (!is_health && !owner(request)) {
        ApiError error = refusal_of(
            401, "A valid API key is needed: send 'Authorization: Bearer KEY'.", "invalid_api_key");
        error.type = "authentication_error";
        return error;
    }
    if (auto error = path_refusal(request)) {
        return error;
    }
    if (request.method == "POST" && ConnectionServer::current().overloaded) {
        ApiError error = queue_full();
        error.code = "busy";
        return error;
    }
    return request.method == "POST" ? body_refusal(request) : std::nullopt;
}

std::optional<ApiError> RequestGate::path_refusal(const httplib::Request& request) const {
    const std::string_view method = method_of(request.path);
    if (method.empty()) {
        return refusal_of(404, fmt::format("There is no '{}' here.", request.path), "not_found");
    }
    if (request.method != method && !(request.method == "HEAD" && method == "GET")) {
        return refusal_of(
            405, fmt::format("'{}' takes {}, not {}.", request.path, method, request.method),
            "method_not_allowed");
    }
    return std::nullopt;
}

std::optional<ApiError> RequestGate::body_refusal(const httplib::Request& request) const {
    if (request.is_multipart_form_data() || request.has_header("Content-Encoding")) {
        return refusal_of(415, "The body must be plain JSON: no form data, no compression.",
                          "unsupported_media_type");
    }
    const std::string transfer = request.get_header_value("Transfer-Encoding");
    if (!transfer.empty() && transfer != "chunked") {
        return refusal_of(400, "'Transfer-Encoding' must be chunked.", "invalid_http");
    }
    const std::string length = request.get_header_value("Content-Length");
    if (length.empty()) {
        return std::nullopt;
    }
    std::uint64_t bytes = 0;
    const auto [end, failure] =
        std::from_chars(length.data(), length.data() + length.size(), bytes);
    const bool too_large = failure == std::errc::result_out_of_range;
    if (!transfer.empty() || (!too_large && failure != std::errc{}) ||
        end != length.data() + length.size()) {
        return refusal_of(400, "'Content-Length' is not valid.", "invalid_http");
    }
    if (too_large || bytes > max_body_bytes_) {
        return refusal_of(413, fmt::format("The body is larger than {} bytes.", max_body_bytes_),
                          "too_large");
    }
    return std::nullopt;
}

std::optional<std::string> RequestGate::read_body(const httplib::Request& request,
                                                  httplib::Response& response,
                                                  const httplib::ContentReader& reader) const {
    std::string body;
    if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) {
        return body;  // HTTP: no body at all
    }
    bool too_large = false;
    const bool complete = reader([&](const char* data, std::size_t size) {
        too_large = body.size() + size > max_body_bytes_;
        if (!too_large) {
            body.append(data, size);
        }
        return !too_large;
    });
    if (complete) {
        return body;
    }
    ConnectionServer::current().close_after = true;
    response.set_header("Connection", "close");
    write_error(
        response,
        too_large
            ? refusal_of(413, fmt::format("The body is larger than {} bytes.", max_body_bytes_),
                         "too_large")
            : refusal_of(408, "The body did not arrive whole in time.", "incomplete_body"));
    return std::nullopt;
}

std::optional<std::uint64_t> RequestGate::owner(const httplib::Request& request) const {
    if (api_keys_.empty()) {
        return 0;
    }
    constexpr std::string_view kScheme = "Bearer ";
    const std::string header = request.get_header_value("Authorization");
    const std::string given = header.starts_with(kScheme) ? header.substr(kScheme.size()) : "";
    std::optional<std::uint64_t> found;
    for (std::size_t i = 0; i < api_keys_.size(); ++i) {
        if (equal_secrets(api_keys_[i], given)) {  // all are compared: time tells nothing
            found = i + 1;
        }
    }
    return found;
}

// Without a key, a web page anywhere could make its visitor's browser ask this machine's model;
// programs send no Origin.
bool RequestGate::may_use(const std::string& origin) const {
    if (origin.empty() || !api_keys_.empty()) {
        return true;
    }
    const std::string host = host_of(origin);
    return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

void RequestGate::add_cors(const httplib::Request& request, httplib::Response& response) const {
    const std::string origin = request.get_header_value("Origin");
    if (origin.empty() || !may_use(origin)) {
        return;
    }
    response.set_header("Access-Control-Allow-Origin", api_keys_.empty() ? origin : "*");
    response.set_header("Vary", "Origin");
    if (request.method == "OPTIONS") {
        const std::string asked = request.get_header_value("Access-Control-Request-Headers");
        response.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        response.set_header("Access-Control-Allow-Headers", !asked.empty() && is_header_list(asked)
                                                                ? asked
                                                                : "Authorization, Content-Type");
        response.set_header("Access-Control-Max-Age", "86400");
    }
}

}  // namespace shardline
