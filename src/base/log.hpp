#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace shardline {

// One named logger per room ("engine", "transport", ...), created on first use, all writing to
// stderr: stdout belongs to the answer and to --json. Thread-safe.
std::shared_ptr<spdlog::logger> room_logger(const std::string& room);

// Level of every logger, present and future: "debug", "info", "warn", "error" or "off".
// Throws Error on any other name.
void set_log_level(const std::string& level);

// What was set last, for child processes.
std::string log_level();

}  // namespace shardline
