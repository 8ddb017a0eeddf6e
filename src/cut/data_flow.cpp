#include "cut/data_flow.hpp"

#include <algorithm>
#include <openvino/op/convert_like.hpp>
#include <openvino/op/util/op_types.hpp>
#include <openvino/op/util/read_value_base.hpp>
#include <openvino/op/util/shape_of_base.hpp>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

namespace {

FlowKind parameter_kind(const ov::Node& parameter) {
    if (is_crossing_input(parameter)) {
        return FlowKind::kData;
    }
    const auto& names = parameter.get_output_tensor(0).get_names();
    if (names.contains("input_ids")) {
        return FlowKind::kTokens;
    }
    return names.contains("inputs_embeds") ? FlowKind::kData : FlowKind::kStep;
}

FlowKind kind_from_inputs(const DataFlow& flow, const ov::Node& node) {
    if (is_shape_of(node)) {
        return FlowKind::kStep;
    }
    FlowKind kind = FlowKind::kConstant;
    bool from_state = false;
    for (std::size_t port = 0; port < node.get_input_size(); ++port) {
        if (carries_data(node, port)) {
            const FlowKind source = flow.kind_of(node.get_input_node_ptr(port));
            kind = std::max(kind, source);
            from_state |= source == FlowKind::kState;
        }
    }
    // Looking tokens up, or joining them with a state, makes activations of them.
    const bool still_tokens =
        node.get_output_size() > 0 && node.get_output_element_type(0).is_integral() && !from_state;
    return kind == FlowKind::kTokens && !still_tokens ? FlowKind::kData : kind;
}

FlowKind kind_of_node(const DataFlow& flow, const ov::Node& node) {
    if (ov::op::util::is_parameter(&node)) {
        return parameter_kind(node);
    }
    if (dynamic_cast<const ov::op::util::ReadValueBase*>(&node) != nullptr) {
        return FlowKind::kState;
    }
    return kind_from_inputs(flow, node);
}

}  // namespace

DataFlow trace_data_flow(const ov::Model& model) {
    DataFlow flow;
    flow.nodes = model.get_ordered_ops();
    flow.index.reserve(flow.nodes.size());
    flow.kinds.reserve(flow.nodes.size());
    for (const auto& node : flow.nodes) {
        const FlowKind kind = kind_of_node(flow, *node);
        flow.index.emplace(node.get(), static_cast<std::uint32_t>(flow.kinds.size()));
        flow.kinds.push_back(kind);
    }
    return flow;
}

bool carries_data(const ov::Node& node, std::size_t port) {
    if (is_shape_of(node)) {
        return false;
    }
    return !(port == 1 && ov::is_type<ov::op::v1::ConvertLike>(&node));
}

bool is_shape_of(const ov::Node& node) {
    return dynamic_cast<const ov::op::util::ShapeOfBase*>(&node) != nullptr;
}

bool is_crossing_input(const ov::Node& node) {
    return ov::op::util::is_parameter(&node) && port_name(node).starts_with("boundary.");
}

std::string port_name(const ov::Node& port) {
    const auto& names = port.get_output_tensor(0).get_names();
    if (names.empty() || names.contains(port.get_friendly_name())) {
        return port.get_friendly_name();
    }
    return names.contains("logits") ? "logits" : *std::min_element(names.begin(), names.end());
}

std::shared_ptr<ov::op::v0::Result> logits_result(const ov::Model& model) {
    std::string found;
    for (const auto& result : model.get_results()) {
        for (const std::string& name : result->get_output_tensor(0).get_names()) {
            if (name == "logits") {
                return result;
            }
            found += found.empty() ? name : ", " + name;
        }
    }
    if (model.get_results().size() == 1) {
        return model.get_results().front();
    }
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the graph has no output 'logits', only: {}", found));
}

}  // namespace shardline
