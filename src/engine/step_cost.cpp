#include "engine/step_cost.hpp"

#include <algorithm>

namespace shardline {

namespace {

constexpr double kFading = 0.99;
constexpr double kLeastSpread = 1.0;  // variance of the rows, below which no slope can be told

}  // namespace

void StepCost::observe(std::uint32_t rows, double ms) {
    const double count = rows;
    weight_ = weight_ * kFading + 1.0;
    rows_ = rows_ * kFading + count;
    ms_ = ms_ * kFading + ms;
    rows_rows_ = rows_rows_ * kFading + count * count;
    rows_ms_ = rows_ms_ * kFading + count * ms;
}

std::optional<StepCost::Line> StepCost::line() const {
    const double spread = weight_ * rows_rows_ - rows_ * rows_;
    if (spread <= kLeastSpread * weight_ * weight_) {
        return std::nullopt;
    }
    const double slope = std::max((weight_ * rows_ms_ - rows_ * ms_) / spread, 0.0);
    return Line{std::max((ms_ - slope * rows_) / weight_, 0.0), slope};
}

}  // namespace shardline
