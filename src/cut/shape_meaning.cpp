#include "cut/shape_meaning.hpp"

#include <array>
#include <openvino/op/parameter.hpp>
#include <openvino/op/util/op_types.hpp>
#include <openvino/op/util/read_value_base.hpp>
#include <utility>

namespace shardline {

// Batch, sequence and total are primes, larger than the small factors that appear beside them and
// small enough that products of all fit into 32 bits.
struct ShapeMeanings::Extents {
    std::int64_t batch = 211;
    std::int64_t sequence = 223;
    std::int64_t total = 457;

    std::int64_t past() const { return total - sequence; }
};

namespace {

ov::PartialShape concrete_input(const ov::Node& parameter, const ov::PartialShape& shape,
                                std::int64_t batch, std::int64_t sequence, std::int64_t total) {
    ov::PartialShape concrete = shape;
    if (shape.rank().is_dynamic()) {
        return concrete;
    }
    const std::string name = input_name(parameter);
    const bool per_sequence = shape.size() >= 2 || name == "beam_idx";
    std::size_t dynamic_seen = per_sequence ? 0 : 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i].is_dynamic()) {
            concrete[i] = dynamic_seen == 0 ? batch : name == "attention_mask" ? total : sequence;
            ++dynamic_seen;
        }
    }
    return concrete;
}

// The axis along which a state grows starts empty; the other open one is the batch.
ov::PartialShape concrete_state(const ov::Node& read, std::int64_t batch, std::int64_t past) {
    ov::PartialShape concrete = read.get_output_partial_shape(0);
    const ov::PartialShape initial =
        read.get_input_size() > 0 ? read.get_input_partial_shape(0) : ov::PartialShape::dynamic();
    if (concrete.rank().is_dynamic()) {
        return concrete;
    }
    for (std::size_t i = 0; i < concrete.size(); ++i) {
        const bool grows = initial.rank().is_static() && initial.size() == concrete.size() &&
                           initial[i] == ov::Dimension(0);
        if (concrete[i].is_dynamic()) {
            concrete[i] = grows ? past : batch;
        }
    }
    return concrete;
}

}  // namespace

std::shared_ptr<ov::Node> ShapeMeanings::copy(const ov::Node& node, const Extents& extents) {
    if (ov::op::util::is_parameter(&node)) {
        return std::make_shared<ov::op::v0::Parameter>(
            node.get_output_element_type(0),
            concrete_input(node, node.get_output_partial_shape(0), extents.batch, extents.sequence,
                           extents.total));
    }
    if (dynamic_cast<const ov::op::util::ReadValueBase*>(&node) != nullptr) {
        return std::make_shared<ov::op::v0::Parameter>(
            node.get_output_element_type(0), concrete_state(node, extents.batch, extents.past()));
    }
    ov::OutputVector inputs;
    for (const auto& input : node.input_values()) {
        const auto copied = copies_.find(input.get_node());
        inputs.push_back(copied == copies_.end() ? input
                                                 : copied->second->output(input.get_index()));
    }
    return node.clone_with_new_inputs(inputs);
}

void ShapeMeanings::infer(const std::vector<ov::Output<ov::Node>>& outputs,
                          const Extents& extents) {
    std::vector<bool> wanted(flow_.nodes.size(), false);
    std::uint32_t end = 0;
    for (const auto& output : outputs) {
        const std::uint32_t index = flow_.index_of(output.get_node());
        wanted[index] = true;
        end = std::max(end, index + 1);
    }
    for (std::uint32_t i = end; i-- > 0;) {
        const auto& node = flow_.nodes[i];
        // What a state starts from says nothing about its shape now.
        if (!wanted[i] || std::dynamic_pointer_cast<ov::op::util::ReadValueBase>(node)) {
            continue;
        }
        for (const auto& input : node->input_values()) {
            const std::uint32_t source = flow_.index_of(input.get_node());
            wanted[source] = wanted[source] || flow_.kinds[source] != FlowKind::kConstant;
        }
    }
    for (std::uint32_t i = 0; i < end; ++i) {
        const ov::Node* node = flow_.nodes[i].get();
        if (wanted[i] && flow_.kinds[i] != FlowKind::kConstant && !copies_.contains(node)) {
            copies_.emplace(node, copy(*node, extents));
        }
    }
}

namespace {

DimensionMeaning meaning_of(std::int64_t value,
                            const std::array<std::pair<Extent, std::int64_t>, 5>& extents) {
    for (const auto& [extent, size] : extents) {
        if (value == size) {
            return {extent, 1};
        }
    }
    for (const auto& [extent, size] : extents) {
        if (size > 1 && value != 0 && value % size == 0) {
            return {extent, value / size};
        }
    }
    return {Extent::kFixed, value};
}

}  // namespace

std::vector<ShapeMeaning> ShapeMeanings::of(const std::vector<ov::Output<ov::Node>>& outputs) {
    Extents extents;
    try {
        infer(outputs, extents);
    } catch (const ov::Exception&) {
        // Some graphs are written for one sequence at a time and refuse any other batch.
        copies_.clear();
        extents.batch = 1;
        infer(outputs, extents);
    }
    const std::array<std::pair<Extent, std::int64_t>, 5> known = {
        {{Extent::kRows, extents.batch * extents.sequence},
         {Extent::kTotal, extents.total},
         {Extent::kPast, extents.past()},
         {Extent::kSequence, extents.sequence},
         {Extent::kBatch, extents.batch}}};
    std::vector<ShapeMeaning> meanings;
    for (const auto& output : outputs) {
        const auto copied = copies_.find(output.get_node());
        const ov::PartialShape now =
            copied == copies_.end() ? output.get_partial_shape()
                                    : copied->second->get_output_partial_shape(output.get_index());
        const ov::PartialShape before = output.get_partial_shape();
        ShapeMeaning meaning(now.rank().is_static() ? now.size() : 0);
        for (std::size_t i = 0; i < meaning.size(); ++i) {
            const bool fixed = before.rank().is_static() && before[i].is_static();
            if (fixed) {
                meaning[i] = {Extent::kFixed, before[i].get_length()};
            } else if (now[i].is_static()) {
                meaning[i] = meaning_of(now[i].get_length(), known);
            }
        }
        meanings.push_back(std::move(meaning));
    }
    return meanings;
}

}  // namespace shardline
