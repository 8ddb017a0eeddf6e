#include "base/error.hpp"

#include <cstdio>
#include <cstdlib>

namespace shardline {

std::string_view error_code_name(ErrorCode code) {
    switch (code) {
        case ErrorCode::kInvalidArgument: return "invalid argument";
        case ErrorCode::kNotFound: return "not found";
        case ErrorCode::kUnsupported: return "unsupported";
        case ErrorCode::kCorrupt: return "corrupt";
        case ErrorCode::kResourceExhausted: return "resource exhausted";
        case ErrorCode::kUnavailable: return "unavailable";
        case ErrorCode::kPermissionDenied: return "permission denied";
        case ErrorCode::kInternal: return "internal";
    }
    return "unknown";
}

void invariant_failed(const char* expression, const char* file, int line) {
    std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, expression);
    std::abort();
}

}  // namespace shardline
