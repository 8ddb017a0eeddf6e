#pragma once

#include "base/error.hpp"

namespace shardline {

// What the process says to a script. 0 is success.
inline constexpr int kExitInternal = 1;
inline constexpr int kExitUsage = 2;        // a flag or value the caller can correct
inline constexpr int kExitNotFound = 3;     // a file, model or worker that is not there
inline constexpr int kExitRefused = 4;      // a model, worker or credential we will not work with
inline constexpr int kExitExhausted = 5;    // memory or queue places
inline constexpr int kExitUnavailable = 6;  // a worker that cannot be reached or went away

int exit_code_of(ErrorCode code);

}  // namespace shardline
