#pragma once

#include <openvino/openvino.hpp>

#include "step/step.hpp"

namespace shardline {

// Throws Error(kUnsupported) for a type that never travels.
ElementType from_ov(ov::element::Type type);
ov::element::Type to_ov(ElementType type);

// The shape a port takes when a step has `rows` rows: the first dynamic dimension is the rows,
// every other dynamic one is 1 (batch and sequence are folded into rows).
ov::Shape shape_of_rows(const ov::PartialShape& shape, std::size_t rows);

}  // namespace shardline
