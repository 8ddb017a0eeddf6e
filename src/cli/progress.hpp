#pragma once

#include <chrono>
#include <string>

namespace shardline {

// One line on stderr that shows how far something is: a bar that redraws itself on a terminal,
// a line per phase elsewhere (logs). Single-threaded; silent when `quiet`.
class ProgressLine final {
public:
    explicit ProgressLine(bool quiet);
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    ~ProgressLine();

    void update(const std::string& what, double fraction);
    void finish();  // leaves the last state standing and starts a new line

private:
    const bool quiet_;
    const bool terminal_;
    bool drawn_ = false;
    std::string what_;
    std::chrono::steady_clock::time_point last_drawn_{};
};

}  // namespace shardline
