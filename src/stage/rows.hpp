#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "step/step.hpp"

namespace shardline {

// Copies rows `kept` of a row-major array of `row_bytes` wide rows, in that order, into `out`
// (resized to fit). Ascending neighbours go in one copy.
void gather_rows(const void* source, std::size_t row_bytes, const std::vector<std::uint32_t>& kept,
                 std::string& out);

// The first element that is a NaN or an infinity, for the floating types; others have none.
// Reads at memory speed: every row that leaves a stage passes through here.
std::optional<std::size_t> find_not_finite(const void* data, std::size_t num_elements,
                                           ElementType type);

}  // namespace shardline
