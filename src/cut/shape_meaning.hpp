#pragma once

#include <cstdint>
#include <openvino/openvino.hpp>
#include <unordered_map>
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

// Tells what every dimension of a tensor counts: repeats shape inference on copies of the ops with
// a batch, a sequence, a past and a total of distinct primes and reads off which one shows. Copies
// only what the asked tensors depend on, never constants. The graph must not change meanwhile.
class ShapeMeanings final {
public:
    explicit ShapeMeanings(const DataFlow& flow) : flow_(flow) {}

    // Of all `outputs`, in order. A dimension that stays unknown is reported as kUnknown.
    std::vector<ShapeMeaning> of(const std::vector<ov::Output<ov::Node>>& outputs);

private:
    struct Extents;

    void infer(const std::vector<ov::Output<ov::Node>>& outputs, const Extents& extents);
    std::shared_ptr<ov::Node> copy(const ov::Node& node, const Extents& extents);

    const DataFlow& flow_;
    std::unordered_map<const ov::Node*, std::shared_ptr<ov::Node>> copies_;
};

}  // namespace shardline
