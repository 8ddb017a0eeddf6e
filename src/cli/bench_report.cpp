#include "cli/bench_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace shardline {

namespace {

template <typename Value>
nlohmann::json or_null(const std::optional<Value>& value) {
    return value.has_value() ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::json to_json(const BenchRow& row) {
    return {{"name", row.name},
            {"value", row.value},
            {"unit", row.unit},
            {"yardstick", row.yardstick},
            {"ratio", or_null(row.ratio)},
            {"target", or_null(row.target)},
            {"met", or_null(row.met())},
            {"simulated", row.simulated}};
}

std::string judgement(const BenchRow& row) {
    if (!row.target.has_value()) {
        return "";
    }
    return fmt::format("{} {:.2f} {}", row.at_most ? "<=" : ">=", *row.target,
                       *row.met() ? "met" : "MISSED");
}

void print_row(const BenchRow& row) {
    const std::string ratio =
        row.ratio.has_value() ? fmt::format("{:.3f} x {}", *row.ratio, row.yardstick) : "";
    fmt::print("{:<40} {:>10.3f} {:<9} {:<32} {}{}\n", row.name, row.value, row.unit, ratio,
               judgement(row), row.simulated ? " (simulated)" : "");
}

}  // namespace

std::optional<bool> BenchRow::met() const {
    if (!target.has_value()) {
        return std::nullopt;
    }
    const double judged = ratio.value_or(value);
    return at_most ? judged <= *target : judged >= *target;
}

BenchRow measured(std::string name, double value, std::string unit, bool simulated) {
    BenchRow row;
    row.name = std::move(name);
    row.value = value;
    row.unit = std::move(unit);
    row.simulated = simulated;
    return row;
}

void print_bench(const std::vector<BenchRow>& rows, bool json) {
    if (!json) {
        std::for_each(rows.begin(), rows.end(), print_row);
        return;
    }
    nlohmann::json out = nlohmann::json::array();
    for (const BenchRow& row : rows) {
        out.push_back(to_json(row));
    }
    fmt::print("{}\n", out.dump(2));
}

double percentile(std::vector<double> values, double share) {
    if (values.empty()) {
        return 0.0;
    }
    const auto place = std::min(
        values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())));
    const auto wanted = values.begin() + static_cast<std::ptrdiff_t>(place);
    std::nth_element(values.begin(), wanted, values.end());
    return *wanted;
}

double median(std::vector<double> values) {
    return percentile(std::move(values), 0.5);
}

}  // namespace shardline
