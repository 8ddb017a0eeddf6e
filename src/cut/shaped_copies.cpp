#include "cut/shaped_copies.hpp"

#include <openvino/op/constant.hpp>
#include <openvino/op/parameter.hpp>
#include <openvino/op/util/op_types.hpp>
#include <openvino/op/util/read_value_base.hpp>

namespace shardline {

namespace {

bool is_read(const ov::Node& node) {
    return dynamic_cast<const ov::op::util::ReadValueBase*>(&node) != nullptr;
}

// The first open extent of an input counts sequences, the next one tokens.
ov::PartialShape input_shape(const ov::Node& parameter, const StepExtents& extents) {
    ov::PartialShape shape = parameter.get_output_partial_shape(0);
    if (shape.rank().is_dynamic()) {
        return shape;
    }
    const std::string name = port_name(parameter);
    const std::int64_t tokens = name == "attention_mask" ? extents.total : extents.sequence;
    bool batch_seen = shape.size() < 2 && name != "beam_idx";
    for (ov::Dimension& dimension : shape) {
        if (dimension.is_dynamic()) {
            dimension = batch_seen ? tokens : extents.batch;
            batch_seen = true;
        }
    }
    return shape;
}

// The extent along which a state grows starts empty; another open one counts sequences.
ov::PartialShape state_shape(const ov::Node& read, const StepExtents& extents) {
    ov::PartialShape shape = read.get_output_partial_shape(0);
    const ov::PartialShape initial =
        read.get_input_size() > 0 ? read.get_input_partial_shape(0) : ov::PartialShape::dynamic();
    if (shape.rank().is_dynamic()) {
        return shape;
    }
    const bool comparable = initial.rank().is_static() && initial.size() == shape.size();
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i].is_dynamic()) {
            const bool grows = comparable && initial[i] == ov::Dimension(0);
            shape[i] = grows ? extents.past() : extents.batch;
        }
    }
    return shape;
}

std::shared_ptr<ov::Node> named_parameter(const ov::Node& original, const ov::PartialShape& shape) {
    auto parameter =
        std::make_shared<ov::op::v0::Parameter>(original.get_output_element_type(0), shape);
    parameter->set_friendly_name(original.get_friendly_name());
    parameter->get_output_tensor(0).set_names(original.get_output_tensor(0).get_names());
    return parameter;
}

}  // namespace

std::shared_ptr<ov::Node> ShapedCopies::copy(const ov::Node& node) const {
    if (ov::op::util::is_parameter(&node)) {
        return named_parameter(node, input_shape(node, extents_));
    }
    if (is_read(node)) {
        return named_parameter(node, state_shape(node, extents_));
    }
    ov::OutputVector inputs;
    for (const auto& input : node.input_values()) {
        inputs.push_back(of(input));
    }
    if (is_shape_of(node) && inputs.front().get_partial_shape().is_static()) {
        const ov::Shape shape = inputs.front().get_shape();
        return ov::op::v0::Constant::create(node.get_output_element_type(0), {shape.size()}, shape);
    }
    return sized(node, inputs);
}

std::shared_ptr<ov::Node> ShapedCopies::sized(const ov::Node& node,
                                              const ov::OutputVector& inputs) const {
    try {
        return node.clone_with_new_inputs(inputs);
    } catch (const ov::Exception&) {
        if (!tolerant_ || node.get_output_size() != 1) {
            throw;
        }
        return named_parameter(node, node.get_output_partial_shape(0));
    }
}

std::vector<bool> ShapedCopies::wanted_by(const std::vector<ov::Output<ov::Node>>& outputs) const {
    std::vector<bool> wanted(flow_.nodes.size(), false);
    std::uint32_t end = 0;
    for (const auto& output : outputs) {
        const std::uint32_t index = flow_.index_of(output.get_node());
        wanted[index] = true;
        end = std::max(end, index + 1);
    }
    for (std::uint32_t i = end; i-- > 0;) {
        // What a state starts from says nothing about its shape now.
        if (!wanted[i] || flow_.kinds[i] == FlowKind::kConstant || is_read(*flow_.nodes[i])) {
            continue;
        }
        for (const auto& input : flow_.nodes[i]->input_values()) {
            wanted[flow_.index_of(input.get_node())] = true;
        }
    }
    return wanted;
}

void ShapedCopies::add(const std::vector<ov::Output<ov::Node>>& outputs) {
    const std::vector<bool> wanted = wanted_by(outputs);
    for (std::uint32_t i = 0; i < wanted.size(); ++i) {
        const ov::Node* node = flow_.nodes[i].get();
        if (wanted[i] && flow_.kinds[i] != FlowKind::kConstant && !copies_.contains(node)) {
            copies_.emplace(node, copy(*node));
        }
    }
}

ov::Output<ov::Node> ShapedCopies::of(const ov::Output<ov::Node>& original) const {
    const auto copied = copies_.find(original.get_node());
    return copied == copies_.end() ? original : copied->second->output(original.get_index());
}

}  // namespace shardline
