#pragma once

#include <memory>
#include <openvino/openvino.hpp>
#include <vector>

#include "cut/attention_layers.hpp"
#include "cut/data_flow.hpp"
#include "cut/shape_meaning.hpp"

namespace shardline {

// A tensor of the part itself from whose shape other shapes may be rebuilt.
struct ShapeSource {
    ov::Output<ov::Node> original;  // whose shape it has, in the graph as it was
    ov::Output<ov::Node> own;       // the tensor in the part
};

// A ShapeOf that looks at a tensor outside the part. `counterpart` is the own layer's tensor that
// plays the same role as the one it looks at (a cache as read, reordered or grown); may be empty.
struct ForeignShape {
    std::shared_ptr<ov::Node> shape_of;
    ov::Output<ov::Node> counterpart;
};

// No shape computation may reach back over a boundary: looks every foreign shape's meaning up and
// then rebuilds it from the part's own tensors. Two steps, because meanings need the graph as it
// was and rebuilding changes it.
class ShapeRewiring final {
public:
    // `sources` in order of preference.
    ShapeRewiring(const DataFlow& flow, std::vector<ForeignShape> foreign,
                  std::vector<ShapeSource> sources);

    // Throws Error(kUnsupported) naming the op whose shape cannot be rebuilt.
    void apply();

private:
    ov::Output<ov::Node> rebuilt(std::size_t which) const;
    ov::Output<ov::Node> dimension(const DimensionMeaning& meaning, ov::element::Type type,
                                   const ov::Node& shape_of) const;
    ov::Output<ov::Node> extent(Extent extent, ov::element::Type type) const;

    std::vector<ForeignShape> foreign_;
    std::vector<ShapeSource> sources_;
    std::vector<ShapeMeaning> foreign_meanings_;
    std::vector<ShapeMeaning> counterpart_meanings_;  // empty where there is no counterpart
    std::vector<ShapeMeaning> source_meanings_;
};

}  // namespace shardline
