#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace shardline {

// What an OpenAI client is told when something cannot be done: the HTTP status and the fields of
// the error object. The text may hold any bytes; it is made valid UTF-8 when it is written.
struct ApiError {
    int status = 500;
    std::string message;
    std::string type = "server_error";
    std::optional<std::string> param;  // the field at fault
    std::optional<std::string> code;   // a word for programs
    int retry_after_s = 0;             // 0: no Retry-After header
};

ApiError bad_request(const std::string& message, std::optional<std::string> param = std::nullopt,
                     std::optional<std::string> code = std::nullopt);
ApiError queue_full(const std::string& reason = "Every place in the queue is taken");
ApiError chain_down(const std::string& reason);
ApiError context_exceeded(std::uint64_t context_tokens, std::uint64_t prompt_tokens);

// An Error of another room as a client sees it.
ApiError to_api_error(ErrorCode code, const std::string& message);

// Carries an ApiError from the depth of request parsing to the route. Never leaves this room.
class RequestError final : public std::runtime_error {
public:
    explicit RequestError(ApiError error)
        : std::runtime_error(error.message), error_(std::move(error)) {}

    const ApiError& error() const { return error_; }

private:
    ApiError error_;
};

}  // namespace shardline
