#pragma once

#include <cstdint>
#include <memory>
#include <openvino/openvino.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace shardline {

// What the value of an op depends on; what depends on several is of the largest kind. An edge into
// a ShapeOf carries no data, so a mask built from the shape of an activation is kStep.
enum class FlowKind : std::uint8_t {
    kConstant,  // weights and what is folded from them
    kStep,      // step inputs: positions, masks, shapes; duplicated into every part
    kState,     // what is read from a state, before this step's rows join it
    kTokens,    // token ids and integers made of them: these never leave the first part
    kData,      // activations
};

// A graph in topological order with the kind of every op. Holds the ops, does not change them.
struct DataFlow {
    std::vector<std::shared_ptr<ov::Node>> nodes;
    std::unordered_map<const ov::Node*, std::uint32_t> index;  // in `nodes`
    std::vector<FlowKind> kinds;                               // by index

    std::uint32_t index_of(const ov::Node* node) const { return index.at(node); }
    FlowKind kind_of(const ov::Node* node) const { return kinds[index.at(node)]; }
};

DataFlow trace_data_flow(const ov::Model& model);

// Whether the edge into input `port` of `node` carries values on, and not a shape or type alone.
bool carries_data(const ov::Node& node, std::size_t port);

bool is_shape_of(const ov::Node& node);

// The parameter is a crossing tensor of an earlier cut ("boundary.K.J").
bool is_crossing_input(const ov::Node& node);

// The name of an input or output: its own where its tensor carries it (a tensor that passes
// straight through a part has the names of both ends), else one of its tensor's.
std::string port_name(const ov::Node& port);

// The result called "logits", else the only one; throws Error(kUnsupported) naming the results.
std::shared_ptr<ov::op::v0::Result> logits_result(const ov::Model& model);

}  // namespace shardline
