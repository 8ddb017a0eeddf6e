#include <algorithm>
#include <openvino/op/constant.hpp>
#include <openvino/op/util/op_types.hpp>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cut/attention_layers.hpp"
#include "cut/boundary.hpp"
#include "cut/cut.hpp"
#include "cut/data_flow.hpp"
#include "model/openvino_error.hpp"

namespace shardline {

namespace {

// The segments that use an op which is not data itself: the first and the last of them, and
// whether any lies between embedding and head.
struct Users {
    std::uint32_t first = UINT32_MAX;
    std::uint32_t last = 0;
    bool layers = false;

    void add(const Users& other) {
        first = std::min(first, other.first);
        last = std::max(last, other.last);
        layers |= other.layers;
    }
};

void count_weights(const DataFlow& flow, const Boundaries& boundaries, LayerMap& map) {
    const std::uint32_t head = map.num_layers + 1;
    std::vector<Users> users(flow.nodes.size());
    for (auto i = static_cast<std::uint32_t>(flow.nodes.size()); i-- > 0;) {
        const ov::Node& node = *flow.nodes[i];
        if (boundaries.position[i] != kNotOnTheWay) {
            const std::uint32_t segment = boundaries.segment_of(i);
            users[i] = {segment, segment, segment > 0 && segment < head};
        }
        for (const auto& input : node.input_values()) {
            const std::uint32_t source = flow.index_of(input.get_node());
            if (boundaries.position[source] == kNotOnTheWay) {
                users[source].add(users[i]);
            }
        }
        if (!ov::op::util::is_constant(&node) || users[i].first == UINT32_MAX) {
            continue;
        }
        const std::uint64_t bytes = node.get_output_tensor(0).size();
        const Users& use = users[i];
        if (use.first == 0 && !use.layers) {
            map.embedding_bytes += bytes;
        } else if (use.first != use.last) {
            map.shared_bytes += bytes;
        } else if (use.first == head) {
            map.head_bytes += bytes;
        } else {
            map.layer_weights_bytes[use.first - 1] += bytes;
        }
    }
}

}  // namespace

LayerMap map_layers(const std::shared_ptr<ov::Model>& model) {
    try {
        const DataFlow flow = trace_data_flow(*model);
        const auto layers = find_attention_layers(*model, flow);
        const Boundaries boundaries = find_boundaries(*model, flow, layers);
        LayerMap map;
        map.num_layers = static_cast<std::uint32_t>(layers.size());
        map.boundaries.resize(boundaries.crossing.size());
        for (std::size_t k = 0; k < boundaries.crossing.size(); ++k) {
            for (const auto& tensor : boundaries.crossing[k]) {
                map.boundaries[k].push_back(
                    {fmt::format("boundary.{}.{}", k, map.boundaries[k].size()),
                     tensor.get_partial_shape(), tensor.get_element_type()});
            }
        }
        map.layer_weights_bytes.resize(layers.size());
        count_weights(flow, boundaries, map);
        return map;
    } catch (const ov::Exception& fault) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("cannot map the layers: {}", openvino_reason(fault.what())));
    }
}

}  // namespace shardline
