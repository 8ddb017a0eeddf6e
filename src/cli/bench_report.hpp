#pragma once

#include <optional>
#include <string>
#include <vector>

namespace shardline {

// One measured figure beside what it is judged by. Ratios come from one run.
struct BenchRow {
    std::string name;
    double value = 0.0;
    std::string unit;
    std::string yardstick;         // what `ratio` is against; empty: none
    std::optional<double> ratio;   // value over yardstick
    std::optional<double> target;  // for the ratio where there is one, else for the value
    bool at_most = false;          // the target is an upper bound
    bool simulated = false;        // paced stages, set acceptance

    // Empty when there is no target.
    std::optional<bool> met() const;
};

// One without a yardstick; what it is judged by is set on it.
BenchRow measured(std::string name, double value, std::string unit, bool simulated);

void print_bench(const std::vector<BenchRow>& rows, bool json);

// The value below which `share` (0 to 1) of them lie; 0 for none.
double percentile(std::vector<double> values, double share);

double median(std::vector<double> values);  // percentile of one half

}  // namespace shardline
