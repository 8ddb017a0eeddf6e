#include "cut/attention_layers.hpp"

#include <algorithm>
#include <map>
#include <openvino/op/ops.hpp>
#include <openvino/op/util/assign_base.hpp>
#include <openvino/op/util/read_value_base.hpp>
#include <set>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

namespace {

using Sinks = std::map<std::string, std::shared_ptr<ov::op::Sink>>;

// Ops that move the elements of a cache about and never mix their values with other activations:
// a state that reaches an attention through these alone is that attention's.
bool keeps_elements(const ov::Node& node) {
    using namespace ov::op;
    return ov::is_type<v8::Gather>(&node) || ov::is_type<v0::Concat>(&node) ||
           ov::is_type<v1::Transpose>(&node) || ov::is_type<v1::Reshape>(&node) ||
           ov::is_type<v0::Unsqueeze>(&node) || ov::is_type<v0::Squeeze>(&node) ||
           ov::is_type<v15::Squeeze>(&node) || ov::is_type<v3::Broadcast>(&node) ||
           ov::is_type<v1::Broadcast>(&node) || ov::is_type<v0::Tile>(&node) ||
           ov::is_type<v0::Convert>(&node) || ov::is_type<v8::Slice>(&node) ||
           ov::is_type<v1::StridedSlice>(&node) || ov::is_type<v1::Split>(&node) ||
           ov::is_type<v1::VariadicSplit>(&node) || ov::is_type<v3::ScatterUpdate>(&node);
}

std::string state_name(const ov::Node& read) {
    return dynamic_cast<const ov::op::util::ReadValueBase&>(read).get_variable_id();
}

Sinks sinks_by_state(const ov::Model& model) {
    Sinks sinks;
    for (const auto& sink : model.get_sinks()) {
        if (const auto assign = std::dynamic_pointer_cast<ov::op::util::AssignBase>(sink)) {
            sinks.emplace(assign->get_variable_id(), sink);
        }
    }
    return sinks;
}

struct FoundCache {
    CachePath path;
    const ov::Node* attention = nullptr;
    std::size_t port = 0;
};

// Follows one state down to its attention. Throws when there is none or more than one.
FoundCache follow_state(const DataFlow& flow, const std::shared_ptr<ov::Node>& read) {
    FoundCache found;
    std::set<std::uint32_t> seen = {flow.index_of(read.get())};
    std::vector<const ov::Node*> stack = {read.get()};
    while (!stack.empty()) {
        const ov::Node* node = stack.back();
        stack.pop_back();
        for (const auto& output : node->outputs()) {
            for (const auto& target : output.get_target_inputs()) {
                const ov::Node* user = target.get_node();
                if (is_attention(*user) && target.get_index() >= 1 && target.get_index() <= 2) {
                    if (found.attention != nullptr && found.attention != user) {
                        throw Error(
                            ErrorCode::kUnsupported,
                            fmt::format("the state '{}' is shared by the attentions '{}' "
                                        "and '{}': layers that share keys cannot be cut",
                                        state_name(*read), found.attention->get_friendly_name(),
                                        user->get_friendly_name()));
                    }
                    found.attention = user;
                    found.port = target.get_index();
                } else if (flow.index.contains(user) && keeps_elements(*user) &&
                           seen.insert(flow.index_of(user)).second) {
                    stack.push_back(user);
                }
            }
        }
    }
    for (const std::uint32_t index : seen) {
        found.path.nodes.push_back(flow.nodes[index]);
        if (flow.kinds[index] == FlowKind::kData) {
            break;
        }
    }
    return found;
}

[[noreturn]] void refuse_stateless(const ov::Model& model) {
    static const std::set<std::string> kStepInputs = {"input_ids",      "inputs_embeds",
                                                      "attention_mask", "position_ids",
                                                      "beam_idx",       "token_type_ids"};
    for (const auto& parameter : model.get_parameters()) {
        if (const std::string name = port_name(*parameter); !kStepInputs.contains(name)) {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("the graph keeps no attention state: it has no ReadValue and "
                                    "takes its cache through inputs such as '{}'; export the "
                                    "model with its state inside",
                                    name));
        }
    }
    throw Error(ErrorCode::kUnsupported,
                "the graph keeps no attention state: it has no ReadValue; export the model with "
                "a cache and with its state inside");
}

[[noreturn]] void refuse_without_attention(const DataFlow& flow, const ov::Node& read) {
    const auto softmax = std::find_if(flow.nodes.begin(), flow.nodes.end(), [&](const auto& node) {
        return (ov::is_type<ov::op::v8::Softmax>(node) || ov::is_type<ov::op::v1::Softmax>(node)) &&
               flow.kind_of(node.get()) == FlowKind::kData;
    });
    const std::string decomposed =
        softmax == flow.nodes.end()
            ? std::string("its layers are not attention")
            : fmt::format(
                  "attention seems to be decomposed around '{}'; export the model with "
                  "ScaledDotProductAttention",
                  (*softmax)->get_friendly_name());
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the graph has the state '{}' but no ScaledDotProductAttention op: {}",
                            state_name(read), decomposed));
}

void attach_states(const ov::Model& model, const DataFlow& flow,
                   const std::vector<std::shared_ptr<ov::Node>>& reads,
                   std::vector<AttentionLayer>& layers) {
    std::map<const ov::Node*, std::size_t> layer_of;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        layer_of.emplace(layers[i].attention.get(), i);
    }
    const Sinks sinks = sinks_by_state(model);
    std::vector<std::map<std::size_t, CachePath>> by_port(layers.size());
    for (const auto& read : reads) {
        FoundCache found = follow_state(flow, read);
        const auto sink = sinks.find(state_name(*read));
        if (found.attention == nullptr || sink == sinks.end()) {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("the state '{}' belongs to no ScaledDotProductAttention: "
                                    "layers that keep another kind of state cannot be served yet",
                                    state_name(*read)));
        }
        found.path.assign = sink->second;
        by_port[layer_of.at(found.attention)].emplace(found.port, std::move(found.path));
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
        for (auto& [port, path] : by_port[i]) {
            layers[i].caches.push_back(std::move(path));
        }
        if (layers[i].caches.empty()) {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("the attention '{}' has no state of its own: a layer that "
                                    "uses the keys of another one cannot be cut off",
                                    layers[i].attention->get_friendly_name()));
        }
    }
}

}  // namespace

bool is_attention(const ov::Node& node) {
    return ov::is_type<ov::op::v13::ScaledDotProductAttention>(&node);
}

std::vector<AttentionLayer> find_attention_layers(const ov::Model& model, const DataFlow& flow) {
    std::vector<AttentionLayer> layers;
    std::vector<std::shared_ptr<ov::Node>> reads;
    for (const auto& node : flow.nodes) {
        if (is_attention(*node)) {
            layers.push_back({node, {}});
        } else if (std::dynamic_pointer_cast<ov::op::util::ReadValueBase>(node)) {
            reads.push_back(node);
        }
    }
    if (reads.empty()) {
        refuse_stateless(model);
    }
    if (layers.empty()) {
        refuse_without_attention(flow, *reads.front());
    }
    attach_states(model, flow, reads, layers);
    return layers;
}

}  // namespace shardline
