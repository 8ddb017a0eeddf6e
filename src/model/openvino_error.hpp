#pragma once

#include <string>

namespace shardline {

// The line of an OpenVINO exception's text that says what went wrong: lines that only name its
// source files and failed checks are left out.
std::string openvino_reason(const std::string& exception_text);

}  // namespace shardline
