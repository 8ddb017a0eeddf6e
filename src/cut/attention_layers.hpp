#pragma once

#include <memory>
#include <openvino/op/sink.hpp>
#include <openvino/openvino.hpp>
#include <vector>

#include "cut/data_flow.hpp"

namespace shardline {

// The way of one state towards its attention: the ReadValue, what reorders it (by beam_idx, by a
// transpose), and last the op by which this step's rows join it.
struct CachePath {
    std::vector<std::shared_ptr<ov::Node>> nodes;  // in topological order
    std::shared_ptr<ov::op::Sink> assign;
};

// One layer: an attention op and the states that no other attention looks at.
struct AttentionLayer {
    std::shared_ptr<ov::Node> attention;
    std::vector<CachePath> caches;  // keys before values, as the attention's ports are
};

// The layers in the order in which data pass them. Throws Error(kUnsupported) that names the input
// of a stateless graph, the state that belongs to no attention, the attention without a state, or
// the op that is missing.
std::vector<AttentionLayer> find_attention_layers(const ov::Model& model, const DataFlow& flow);

bool is_attention(const ov::Node& node);

}  // namespace shardline
