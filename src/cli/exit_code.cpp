#include "cli/exit_code.hpp"

namespace shardline {

int exit_code_of(ErrorCode code) {
    switch (code) {
        case ErrorCode::kInvalidArgument: return kExitUsage;
        case ErrorCode::kNotFound: return kExitNotFound;
        case ErrorCode::kUnsupported:
        case ErrorCode::kCorrupt:
        case ErrorCode::kPermissionDenied: return kExitRefused;
        case ErrorCode::kResourceExhausted: return kExitExhausted;
        case ErrorCode::kUnavailable: return kExitUnavailable;
        case ErrorCode::kInternal: return kExitInternal;
    }
    return kExitInternal;
}

}  // namespace shardline
