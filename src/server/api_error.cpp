#include "server/api_error.hpp"

#include <fmt/format.h>

namespace shardline {

ApiError bad_request(const std::string& message, std::optional<std::string> param,
                     std::optional<std::string> code) {
    ApiError error;
    error.status = 400;
    error.message = message;
    error.type = "invalid_request_error";
    error.param = std::move(param);
    error.code = std::move(code);
    return error;
}

ApiError queue_full(const std::string& reason) {
    ApiError error;
    error.status = 429;
    error.message = fmt::format("{}; try again in a moment.", reason);
    error.type = "rate_limit_error";
    error.code = "queue_full";
    error.retry_after_s = 1;
    return error;
}

ApiError chain_down(const std::string& reason) {
    ApiError error;
    error.status = 503;
    error.message = fmt::format("The model's stages cannot be reached now: {}.",
                                reason.empty() ? "the chain is not up" : reason);
    error.type = "service_unavailable";
    error.code = "chain_down";
    error.retry_after_s = 5;
    return error;
}

ApiError context_exceeded(std::uint64_t context_tokens, std::uint64_t prompt_tokens) {
    return bad_request(
        fmt::format("This model's context holds {} tokens, prompt and answer together; the prompt "
                    "has {} tokens. Shorten the prompt.",
                    context_tokens, prompt_tokens),
        std::nullopt, "context_length_exceeded");
}

ApiError to_api_error(ErrorCode code, const std::string& message) {
    switch (code) {
        case ErrorCode::kInvalidArgument: return bad_request(message);
        case ErrorCode::kUnsupported: return bad_request(message, std::nullopt, "unsupported");
        case ErrorCode::kUnavailable: return chain_down(message);
        case ErrorCode::kResourceExhausted: {
            ApiError error = queue_full();
            error.message = message;
            error.code = "resource_exhausted";
            error.status = 503;
            error.type = "service_unavailable";
            return error;
        }
        case ErrorCode::kNotFound:
        case ErrorCode::kCorrupt:
        case ErrorCode::kPermissionDenied:
        case ErrorCode::kInternal: break;
    }
    ApiError error;
    error.message = message;
    error.code = "internal_error";
    return error;
}

}  // namespace shardline
