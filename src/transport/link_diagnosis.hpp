#pragma once

#include <chrono>
#include <string>

#include "base/error.hpp"
#include "security/credentials.hpp"

namespace shardline {

// Why a worker cannot be talked to, found by connecting once more, step by step: TCP, TLS, our
// certificate. Takes at most about twice `timeout`. `seen` is what the failed call said, for the
// case that everything works now.
Error diagnose_link(const std::string& address, const Credentials& credentials,
                    std::chrono::milliseconds timeout, const std::string& seen);

}  // namespace shardline
