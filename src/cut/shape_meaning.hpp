#pragma once

#include <cstdint>
#include <openvino/openvino.hpp>
#include <vector>

#include "cut/data_flow.hpp"

namespace shardline {

// What one dimension of a tensor counts, times `factor`. kFixed: a constant of that value.
enum class Extent : std::uint8_t { kFixed, kBatch, kSequence, kRows, kPast, kTotal, kUnknown };

struct DimensionMeaning {
    Extent extent = Extent::kUnknown;
    std::int64_t factor = 1;

    bool operator==(const DimensionMeaning&) const = default;
};

using ShapeMeaning = std::vector<DimensionMeaning>;

// Tells what every dimension of each of `outputs` counts: shape inference is repeated with a
// batch, a sequence, a past and a total of tell-tale sizes, and which of them shows is read off.
// A tensor of unknown rank has an empty meaning.
std::vector<ShapeMeaning> shape_meanings(const DataFlow& flow,
                                         const std::vector<ov::Output<ov::Node>>& outputs);

}  // namespace shardline
