#pragma once

#include <cstdint>
#include <optional>

namespace shardline {

// What a step costs by its rows, learnt from steps that came back: time of the slowest stage =
// fixed + per_row * rows, fitted by least squares over the last few hundred steps, recent ones
// counting more. Owned by the scheduler, called from the engine's thread.
class StepCost final {
public:
    void observe(std::uint32_t rows, double ms);

    // Nothing until steps of different sizes were seen, as long as one cannot tell.
    struct Line {
        double fixed_ms = 0.0;
        double per_row_ms = 0.0;

        double ms(double rows) const { return fixed_ms + per_row_ms * rows; }
    };
    std::optional<Line> line() const;

private:
    double weight_ = 0.0;  // all five fade with every step
    double rows_ = 0.0;
    double ms_ = 0.0;
    double rows_rows_ = 0.0;
    double rows_ms_ = 0.0;
};

}  // namespace shardline
