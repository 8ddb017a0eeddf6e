#include "cli/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/platform.hpp"

namespace shardline {

namespace {

constexpr int kBarWidth = 28;
constexpr auto kRedrawInterval = std::chrono::milliseconds(50);

}  // namespace

ProgressLine::ProgressLine(bool quiet) : quiet_(quiet), terminal_(stderr_is_terminal()) {}

ProgressLine::~ProgressLine() {
    finish();
}

void ProgressLine::update(const std::string& what, double fraction) {
    if (quiet_) {
        return;
    }
    const bool new_phase = what != what_;
    if (!terminal_) {
        if (new_phase) {
            fmt::print(stderr, "{}\n", what);
        }
        what_ = what;
        return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!new_phase && fraction < 1.0 && now - last_drawn_ < kRedrawInterval) {
        return;
    }
    if (new_phase) {
        finish();
    }
    what_ = what;
    last_drawn_ = now;
    drawn_ = true;
    const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kBarWidth);
    fmt::print(stderr, "\r{:<44.44} [{:=>{}}{:>{}}] {:3.0f} %", what, "", full, "",
               kBarWidth - full, fraction * 100.0);
    std::fflush(stderr);
}

void ProgressLine::finish() {
    if (drawn_) {
        fmt::print(stderr, "\n");
        drawn_ = false;
    }
    what_.clear();
}

}  // namespace shardline
