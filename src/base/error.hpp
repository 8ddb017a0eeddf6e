#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace shardline {

// What kind of thing went wrong, so that the edges (exit codes, HTTP status, wire status) can
// translate without reading the message.
enum class ErrorCode {
    kInvalidArgument,    // a flag, request field or file content the user can correct
    kNotFound,           // a file, model or worker that is not there
    kUnsupported,        // well formed, but an op, architecture or device we cannot serve
    kCorrupt,            // a file or frame whose content contradicts itself
    kResourceExhausted,  // memory, blocks, queue places
    kUnavailable,        // a peer that cannot be reached now; trying again later may help
    kPermissionDenied,   // credentials that do not fit
    kInternal,           // our own fault
};

std::string_view error_code_name(ErrorCode code);

// Thrown by import, cut, load and option handling. The message names the thing and, where there
// is one, the remedy. Events that are expected inside a step are values, never an Error.
class Error final : public std::runtime_error {
public:
    Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

    ErrorCode code() const { return code_; }

private:
    ErrorCode code_;
};

[[noreturn]] void invariant_failed(const char* expression, const char* file, int line);

}  // namespace shardline

// A broken invariant is our own bug and ends the process; never use it on input from outside.
#define SHARDLINE_INVARIANT(expression)                                     \
    do {                                                                    \
        if (!(expression)) {                                                \
            ::shardline::invariant_failed(#expression, __FILE__, __LINE__); \
        }                                                                   \
    } while (false)
