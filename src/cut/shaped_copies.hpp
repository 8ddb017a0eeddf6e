#pragma once

#include <cstdint>
#include <memory>
#include <openvino/openvino.hpp>
#include <unordered_map>
#include <vector>

#include "cut/data_flow.hpp"

namespace shardline {

// A step's sizes: `sequence` new tokens of each of `batch` sequences, `total` with their past.
struct StepExtents {
    std::int64_t batch = 1;
    std::int64_t sequence = 1;
    std::int64_t total = 1;

    std::int64_t past() const { return total - sequence; }
};

// Copies of ops with every input and state of a fixed size, so that shape inference gives sizes
// instead of question marks. Copies only what is asked for, never what depends on constants alone;
// a state becomes a parameter, a ShapeOf the constant that it then is. The graph must not change
// meanwhile. Throws ov::Exception when an op refuses the sizes; a tolerant one gives such an op
// the shape it has in the graph, so that what does not depend on it is still told.
class ShapedCopies final {
public:
    ShapedCopies(const DataFlow& flow, const StepExtents& extents, bool tolerant = false)
        : flow_(flow), extents_(extents), tolerant_(tolerant) {}

    // Copies what `outputs` depend on.
    void add(const std::vector<ov::Output<ov::Node>>& outputs);

    // The copy of an output that was added, or of one that it depends on.
    ov::Output<ov::Node> of(const ov::Output<ov::Node>& original) const;

private:
    std::vector<bool> wanted_by(const std::vector<ov::Output<ov::Node>>& outputs) const;
    std::shared_ptr<ov::Node> copy(const ov::Node& node) const;
    std::shared_ptr<ov::Node> sized(const ov::Node& node, const ov::OutputVector& inputs) const;

    const DataFlow& flow_;
    const StepExtents extents_;
    const bool tolerant_;
    std::unordered_map<const ov::Node*, std::shared_ptr<ov::Node>> copies_;
};

}  // namespace shardline
