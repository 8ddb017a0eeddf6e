#include "base/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <array>
#include <mutex>
#include <string_view>

#include "base/error.hpp"

namespace shardline {

std::shared_ptr<spdlog::logger> room_logger(const std::string& room) {
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    if (auto existing = spdlog::get(room)) {
        return existing;
    }
    auto logger = spdlog::stderr_color_mt(room);
    logger->set_pattern("%H:%M:%S.%e %^%l%$ [%n] %v");
    return logger;
}

void set_log_level(const std::string& level) {
    constexpr std::array<std::string_view, 5> kLevels = {"debug", "info", "warn", "error", "off"};
    for (std::string_view known : kLevels) {
        if (level == known) {
            spdlog::set_level(spdlog::level::from_str(level));
            return;
        }
    }
    throw Error(ErrorCode::kInvalidArgument,
                "log level '" + level + "' is none of debug, info, warn, error, off");
}

std::string log_level() {
    const auto name = spdlog::level::to_string_view(spdlog::get_level());
    return name == "warning" ? "warn" : std::string(name.data(), name.size());
}

}  // namespace shardline
