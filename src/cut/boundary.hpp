#pragma once

#include <cstdint>
#include <openvino/openvino.hpp>
#include <vector>

#include "cut/attention_layers.hpp"
#include "cut/data_flow.hpp"

namespace shardline {

inline constexpr std::uint32_t kNotOnTheWay = UINT32_MAX;

// The graph's data laid out in one line, every op as late as it can be, and where it is cut:
//
//     embedding ... | layer 0 ... | layer 1 ... | ... | head ... logits
//                   ^ positions <= cuts[0] lie before boundary 0
//
// A tensor crosses a boundary when it is computed before and used after.
struct Boundaries {
    std::vector<std::uint32_t> position;  // by flow index; kNotOnTheWay for all that is not data
    std::vector<std::uint32_t> cuts;      // per boundary, the last position before it
    std::vector<std::vector<ov::Output<ov::Node>>> crossing;

    // Boundaries before the op: 0 within the embedding, k + 1 within layer k.
    std::uint32_t segment_of(std::uint32_t flow_index) const;
};

// Between the attentions of two layers the boundary is where the fewest tensors cross, and of
// such places the last. Throws Error(kUnsupported) naming the op whose output cannot cross.
Boundaries find_boundaries(const ov::Model& model, const DataFlow& flow,
                           const std::vector<AttentionLayer>& layers);

// The last matrix product of an activation with weights on the way to the logits, with its port;
// null when the graph has none. Works on whole graphs and on parts.
ov::Input<ov::Node> find_head_input(const ov::Model& model, const DataFlow& flow);

}  // namespace shardline
