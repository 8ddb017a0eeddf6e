#include "cut/shape_rewiring.hpp"

#include <openvino/op/concat.hpp>
#include <openvino/op/constant.hpp>
#include <openvino/op/gather.hpp>
#include <openvino/op/multiply.hpp>
#include <openvino/op/shape_of.hpp>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

namespace {

// Equal to the letter, and known throughout.
bool same_meaning(const ShapeMeaning& a, const ShapeMeaning& b) {
    for (const DimensionMeaning& dimension : a) {
        if (dimension.extent == Extent::kUnknown) {
            return false;
        }
    }
    return !a.empty() && a == b;
}

}  // namespace

ShapeRewiring::ShapeRewiring(const DataFlow& flow, std::vector<ForeignShape> foreign,
                             std::vector<ShapeSource> sources)
    : foreign_(std::move(foreign)), sources_(std::move(sources)) {
    if (foreign_.empty()) {
        return;
    }
    std::vector<ov::Output<ov::Node>> asked;
    for (const ForeignShape& shape : foreign_) {
        asked.push_back(shape.shape_of->input_value(0));
    }
    for (const ForeignShape& shape : foreign_) {
        const bool has = shape.counterpart.get_node() != nullptr;
        asked.push_back(has ? shape.counterpart : shape.shape_of->input_value(0));
    }
    for (const ShapeSource& source : sources_) {
        asked.push_back(source.original);
    }
    const std::vector<ShapeMeaning> answers = shape_meanings(flow, asked);
    const auto counterparts = answers.begin() + static_cast<std::ptrdiff_t>(foreign_.size());
    const auto own = counterparts + static_cast<std::ptrdiff_t>(foreign_.size());
    foreign_meanings_.assign(answers.begin(), counterparts);
    counterpart_meanings_.assign(counterparts, own);
    source_meanings_.assign(own, answers.end());
}

ov::Output<ov::Node> ShapeRewiring::extent(Extent wanted, ov::element::Type type) const {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        for (std::size_t axis = 0; axis < source_meanings_[i].size(); ++axis) {
            if (source_meanings_[i][axis] == DimensionMeaning{wanted, 1}) {
                const auto shape = std::make_shared<ov::op::v3::ShapeOf>(sources_[i].own, type);
                return std::make_shared<ov::op::v8::Gather>(
                    shape, ov::op::v0::Constant::create(ov::element::i64, {1}, {axis}),
                    ov::op::v0::Constant::create(ov::element::i64, {}, {0}));
            }
        }
    }
    if (wanted == Extent::kRows) {
        const auto batch = extent(Extent::kBatch, type);
        const auto sequence = extent(Extent::kSequence, type);
        if (batch.get_node() != nullptr && sequence.get_node() != nullptr) {
            return std::make_shared<ov::op::v1::Multiply>(batch, sequence);
        }
    }
    return {};
}

ov::Output<ov::Node> ShapeRewiring::dimension(const DimensionMeaning& meaning,
                                              ov::element::Type type,
                                              const ov::Node& shape_of) const {
    const auto factor = ov::op::v0::Constant::create(type, {1}, {meaning.factor});
    if (meaning.extent == Extent::kFixed) {
        return factor;
    }
    const auto counted =
        meaning.extent == Extent::kUnknown ? ov::Output<ov::Node>() : extent(meaning.extent, type);
    if (counted.get_node() == nullptr) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("'{}' looks at the shape {} of '{}', which lies outside the part "
                                "and cannot be rebuilt inside it",
                                shape_of.get_friendly_name(),
                                shape_of.get_input_partial_shape(0).to_string(),
                                shape_of.get_input_node_ptr(0)->get_friendly_name()));
    }
    return meaning.factor == 1
               ? counted
               : ov::Output<ov::Node>(std::make_shared<ov::op::v1::Multiply>(counted, factor));
}

ov::Output<ov::Node> ShapeRewiring::rebuilt(std::size_t which) const {
    const ov::Node& shape_of = *foreign_[which].shape_of;
    ov::OutputVector dimensions;
    for (const DimensionMeaning& meaning : foreign_meanings_[which]) {
        dimensions.push_back(dimension(meaning, shape_of.get_output_element_type(0), shape_of));
    }
    if (dimensions.empty()) {
        dimension({}, shape_of.get_output_element_type(0), shape_of);
    }
    return std::make_shared<ov::op::v0::Concat>(dimensions, 0);
}

void ShapeRewiring::apply() {
    for (std::size_t i = 0; i < foreign_.size(); ++i) {
        // Looking at the own layer's tensor of the same role keeps the pattern by which the paged
        // rewrite recognises past and total lengths.
        ov::Output<ov::Node> twin;
        if (foreign_[i].counterpart.get_node() != nullptr &&
            same_meaning(foreign_meanings_[i], counterpart_meanings_[i])) {
            twin = foreign_[i].counterpart;
        }
        for (std::size_t s = 0; s < sources_.size() && twin.get_node() == nullptr; ++s) {
            if (same_meaning(foreign_meanings_[i], source_meanings_[s])) {
                twin = sources_[s].own;
            }
        }
        if (twin.get_node() != nullptr) {
            foreign_[i].shape_of->input(0).replace_source_output(twin);
        } else {
            foreign_[i].shape_of->output(0).replace(rebuilt(i));
        }
    }
}

}  // namespace shardline
