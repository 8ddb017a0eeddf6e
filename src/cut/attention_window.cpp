#include "cut/attention_window.hpp"

#include <algorithm>
#include <array>
#include <openvino/op/constant.hpp>
#include <openvino/op/convert.hpp>
#include <openvino/op/parameter.hpp>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "cut/attention_layers.hpp"
#include "cut/data_flow.hpp"
#include "cut/shaped_copies.hpp"

namespace shardline {

namespace {

// Tried in turn, as a mask cut from a table is no longer than its table.
constexpr std::array<std::int64_t, 4> kContexts = {std::int64_t{1} << 19, std::int64_t{1} << 15,
                                                   std::int64_t{1} << 11, std::int64_t{1} << 8};

constexpr std::size_t kNoMask = SIZE_MAX;
constexpr std::size_t kMaskPort = 3;
constexpr std::size_t kWindowPort = 10;  // of the paged attention op

// Masked positions get the lowest value of f16, f32 or an infinity; biases by distance stay above.
constexpr float kMasked = -60000.0F;

ov::Tensor step_input(const ov::Node& parameter, std::int64_t context) {
    const ov::Shape& shape = parameter.get_output_shape(0);
    ov::Tensor tensor(parameter.get_output_element_type(0), shape);
    const std::string name = port_name(parameter);
    const std::int64_t value = name == "position_ids" ? context - 1 : name == "beam_idx" ? 0 : 1;
    for (std::size_t i = 0; i < tensor.get_size(); ++i) {
        if (tensor.get_element_type() == ov::element::i32) {
            tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(value);
        } else {
            tensor.data<std::int64_t>()[i] = value;
        }
    }
    return tensor;
}

// Open positions at the end of the mask's last row; 0 when none is closed.
std::int64_t window_of(const ov::Tensor& mask, ov::element::Type type) {
    const float closed = type == ov::element::boolean ? 0.5F : kMasked;
    const auto context = static_cast<std::int64_t>(mask.get_shape().back());
    const float* end = mask.data<float>() + mask.get_size();
    std::int64_t open = 0;
    while (open < context && end[-1 - open] > closed) {
        ++open;
    }
    return open == context ? 0 : open;
}

ov::ParameterVector parameters_of(const ov::OutputVector& outputs) {
    ov::ParameterVector parameters;
    std::unordered_set<const ov::Node*> seen;
    std::vector<std::shared_ptr<ov::Node>> stack;
    for (const auto& output : outputs) {
        stack.push_back(output.get_node_shared_ptr());
    }
    while (!stack.empty()) {
        const std::shared_ptr<ov::Node> node = stack.back();
        stack.pop_back();
        if (!seen.insert(node.get()).second) {
            continue;
        }
        if (const auto parameter = ov::as_type_ptr<ov::op::v0::Parameter>(node)) {
            parameters.push_back(parameter);
        }
        for (const auto& input : node->input_values()) {
            stack.push_back(input.get_node_shared_ptr());
        }
    }
    return parameters;
}

// The masks for one token at the end of `context`. Throws ov::Exception when they cannot be
// computed for so long a context.
std::vector<ov::Tensor> compute_masks(ov::Core& core, const DataFlow& flow,
                                      const ov::OutputVector& masks, std::int64_t context) {
    ShapedCopies copies(flow, {.batch = 1, .sequence = 1, .total = context});
    copies.add(masks);
    ov::OutputVector outputs;
    for (const auto& mask : masks) {
        outputs.push_back(std::make_shared<ov::op::v0::Convert>(copies.of(mask), ov::element::f32));
    }
    const ov::ParameterVector parameters = parameters_of(outputs);
    const auto graph = std::make_shared<ov::Model>(outputs, parameters);
    auto compiled =
        core.compile_model(graph, "CPU", ov::hint::inference_precision(ov::element::f32));
    auto infer = compiled.create_infer_request();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        infer.set_input_tensor(i, step_input(*parameters[i], context));
    }
    infer.infer();
    std::vector<ov::Tensor> computed;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        computed.push_back(infer.get_output_tensor(i));
    }
    return computed;
}

// Windows by mask; empty when no context will do.
std::vector<std::int64_t> windows_of(ov::Core& core, const DataFlow& flow,
                                     const ov::OutputVector& masks) {
    for (const std::int64_t context : kContexts) {
        try {
            std::vector<std::int64_t> windows;
            for (std::size_t i = 0;
                 const ov::Tensor& mask : compute_masks(core, flow, masks, context)) {
                windows.push_back(window_of(mask, masks[i++].get_element_type()));
            }
            return windows;
        } catch (const ov::Exception&) {
            continue;
        }
    }
    return {};
}

// The value of a single number that depends on single constants alone; empty for any other.
std::optional<ov::Tensor> constant_value(const ov::Output<ov::Node>& output) {
    if (output.get_partial_shape().is_dynamic() || ov::shape_size(output.get_shape()) != 1) {
        return std::nullopt;
    }
    if (const auto* constant = ov::as_type<ov::op::v0::Constant>(output.get_node())) {
        return constant->get_tensor_view();
    }
    ov::TensorVector inputs;
    for (const auto& input : output.get_node()->input_values()) {
        std::optional<ov::Tensor> value = constant_value(input);
        if (!value) {
            return std::nullopt;
        }
        inputs.push_back(*value);
    }
    ov::TensorVector outputs = {ov::Tensor(output.get_element_type(), output.get_shape())};
    if (inputs.empty() || output.get_node()->get_output_size() != 1 ||
        !output.get_node()->evaluate(outputs, inputs)) {
        return std::nullopt;
    }
    return outputs.front();
}

}  // namespace

std::vector<AttentionWindow> stateful_windows(ov::Core& core,
                                              const std::shared_ptr<ov::Model>& model) {
    const DataFlow flow = trace_data_flow(*model);
    std::vector<AttentionWindow> windows;
    ov::OutputVector masks;
    std::vector<std::size_t> mask_of;  // by attention, kNoMask for none
    for (const auto& node : flow.nodes) {
        if (!is_attention(*node)) {
            continue;
        }
        windows.push_back({node->get_friendly_name(), 0});
        if (node->get_input_size() <= kMaskPort) {
            mask_of.push_back(kNoMask);
            continue;
        }
        const ov::Output<ov::Node> mask = node->input_value(kMaskPort);
        const auto known = std::find(masks.begin(), masks.end(), mask);
        mask_of.push_back(static_cast<std::size_t>(known - masks.begin()));
        if (known == masks.end()) {
            masks.push_back(mask);
        }
    }
    const std::vector<std::int64_t> computed = windows_of(core, flow, masks);
    for (std::size_t i = 0; i < windows.size(); ++i) {
        if (mask_of[i] != kNoMask) {
            windows[i].tokens = computed.empty() ? kUnknownWindow : computed[mask_of[i]];
        }
    }
    return windows;
}

std::vector<AttentionWindow> paged_windows(const std::shared_ptr<ov::Model>& model) {
    std::vector<AttentionWindow> windows;
    for (const auto& node : model->get_ordered_ops()) {
        if (std::string_view(node->get_type_name()) != "PagedAttentionExtension") {
            continue;
        }
        const std::optional<ov::Tensor> value = constant_value(node->input_value(kWindowPort));
        windows.push_back(
            {node->get_friendly_name(), value ? *value->data<std::int32_t>() : kUnknownWindow});
    }
    return windows;
}

}  // namespace shardline
