#include "cut/boundary.hpp"

#include <algorithm>
#include <numeric>
#include <openvino/op/matmul.hpp>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

namespace {

bool moves_data(const DataFlow& flow, std::uint32_t index) {
    return flow.kinds[index] >= FlowKind::kTokens;
}

// By flow index, the first stretch in which an op's data are needed: 0 for what must stay with the
// token ids, k + 1 for what attention k needs, layers + 1 for the head; kNotOnTheWay for the rest.
std::vector<std::uint32_t> needed_by(const ov::Model& model, const DataFlow& flow,
                                     const std::vector<AttentionLayer>& layers) {
    std::vector<std::uint32_t> needed(flow.nodes.size(), kNotOnTheWay);
    const auto head_stretch = static_cast<std::uint32_t>(layers.size()) + 1;
    needed[flow.index_of(logits_result(model).get())] = head_stretch;
    for (std::uint32_t k = 0; k < layers.size(); ++k) {
        needed[flow.index_of(layers[k].attention.get())] = k + 1;
        for (const CachePath& cache : layers[k].caches) {
            needed[flow.index_of(cache.assign.get())] = k + 1;
        }
    }
    for (auto i = static_cast<std::uint32_t>(flow.nodes.size()); i-- > 0;) {
        const ov::Node& node = *flow.nodes[i];
        if (needed[i] == kNotOnTheWay) {
            continue;
        }
        bool looks_tokens_up = flow.kinds[i] == FlowKind::kTokens;
        for (std::size_t port = 0; port < node.get_input_size(); ++port) {
            if (carries_data(node, port)) {
                const std::uint32_t source = flow.index_of(node.get_input_node_ptr(port));
                looks_tokens_up |= flow.kinds[source] == FlowKind::kTokens;
                needed[source] = std::min(needed[source], needed[i]);
            }
        }
        if (looks_tokens_up) {
            needed[i] = 0;
        }
    }
    for (std::uint32_t i = 0; i < flow.nodes.size(); ++i) {
        if (!moves_data(flow, i)) {
            needed[i] = kNotOnTheWay;
        }
    }
    return needed;
}

struct Line {
    std::vector<std::uint32_t> order;     // flow indices by position
    std::vector<std::uint32_t> position;  // by flow index
};

Line lay_out(const std::vector<std::uint32_t>& needed) {
    Line line;
    for (std::uint32_t i = 0; i < needed.size(); ++i) {
        if (needed[i] != kNotOnTheWay) {
            line.order.push_back(i);
        }
    }
    std::stable_sort(line.order.begin(), line.order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return needed[a] < needed[b]; });
    line.position.assign(needed.size(), kNotOnTheWay);
    for (std::uint32_t p = 0; p < line.order.size(); ++p) {
        line.position[line.order[p]] = p;
    }
    return line;
}

// The position of the last op that takes data from `output`; its own position when there is none.
std::uint32_t last_use(const DataFlow& flow, const Line& line, const ov::Output<ov::Node>& output) {
    std::uint32_t last = line.position[flow.index_of(output.get_node())];
    for (const auto& target : output.get_target_inputs()) {
        const auto user = flow.index.find(target.get_node());
        if (user == flow.index.end() || !carries_data(*target.get_node(), target.get_index())) {
            continue;
        }
        const std::uint32_t position = line.position[user->second];
        if (position != kNotOnTheWay) {
            last = std::max(last, position);
        }
    }
    return last;
}

// How many tensors are computed at or before each position and used after it.
std::vector<std::int32_t> live_counts(const DataFlow& flow, const Line& line) {
    std::vector<std::int32_t> live(line.order.size() + 1, 0);
    for (std::uint32_t p = 0; p < line.order.size(); ++p) {
        for (const auto& output : flow.nodes[line.order[p]]->outputs()) {
            ++live[p];
            --live[last_use(flow, line, output)];
        }
    }
    std::partial_sum(live.begin(), live.end(), live.begin());
    return live;
}

void check_crossing(const ov::Output<ov::Node>& output, std::size_t boundary) {
    const ov::PartialShape& shape = output.get_partial_shape();
    const bool rows =
        shape.rank().is_static() && shape.size() >= 2 && shape[shape.size() - 1].is_static();
    if (!rows || !output.get_element_type().is_real()) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("no clean boundary before layer {}: '{}' ({} {}) would cross it, "
                                "which is not rows of activations",
                                boundary, output.get_node()->get_friendly_name(),
                                output.get_element_type().get_type_name(), shape.to_string()));
    }
}

std::uint32_t best_cut(const std::vector<std::int32_t>& live, std::uint32_t from,
                       std::uint32_t sink) {
    std::uint32_t best = from;
    for (std::uint32_t p = from; p < sink; ++p) {
        if (live[p] <= live[best]) {
            best = p;
        }
    }
    return best;
}

}  // namespace

std::uint32_t Boundaries::segment_of(std::uint32_t flow_index) const {
    const auto after = std::lower_bound(cuts.begin(), cuts.end(), position[flow_index]);
    return static_cast<std::uint32_t>(after - cuts.begin());
}

Boundaries find_boundaries(const ov::Model& model, const DataFlow& flow,
                           const std::vector<AttentionLayer>& layers) {
    const std::vector<std::uint32_t> needed = needed_by(model, flow, layers);
    const Line line = lay_out(needed);
    const std::vector<std::int32_t> live = live_counts(flow, line);
    const ov::Input<ov::Node> head = find_head_input(model, flow);
    Boundaries found;
    found.position = line.position;
    for (std::uint32_t k = 0; k <= layers.size(); ++k) {
        const ov::Node* sink = k < layers.size() ? layers[k].attention.get() : head.get_node();
        const auto from =
            std::partition_point(line.order.begin(), line.order.end(),
                                 [&](std::uint32_t index) { return needed[index] <= k; });
        const auto first = static_cast<std::uint32_t>(from - line.order.begin());
        const std::uint32_t last = line.position[flow.index_of(sink)];
        if (first == 0 || last == kNotOnTheWay || last < first) {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("no boundary before '{}': it does not follow from the layers "
                                    "before it",
                                    sink->get_friendly_name()));
        }
        found.cuts.push_back(best_cut(live, first - 1, last));
    }
    found.crossing.resize(found.cuts.size());
    for (std::uint32_t p = 0; p < line.order.size(); ++p) {
        for (const auto& output : flow.nodes[line.order[p]]->outputs()) {
            const std::uint32_t last = last_use(flow, line, output);
            auto cut = std::lower_bound(found.cuts.begin(), found.cuts.end(), p);
            for (; cut != found.cuts.end() && *cut < last; ++cut) {
                const auto k = static_cast<std::size_t>(cut - found.cuts.begin());
                check_crossing(output, k);
                found.crossing[k].push_back(output);
            }
        }
    }
    return found;
}

ov::Input<ov::Node> find_head_input(const ov::Model& model, const DataFlow& flow) {
    std::vector<bool> on_the_way(flow.nodes.size(), false);
    on_the_way[flow.index_of(logits_result(model).get())] = true;
    for (auto i = static_cast<std::uint32_t>(flow.nodes.size()); i-- > 0;) {
        if (!on_the_way[i]) {
            continue;
        }
        const auto& node = flow.nodes[i];
        std::size_t data_port = 0;
        std::size_t num_data_ports = 0;
        for (std::size_t port = 0; port < node->get_input_size(); ++port) {
            const std::uint32_t source = flow.index_of(node->get_input_node_ptr(port));
            if (carries_data(*node, port) && moves_data(flow, source)) {
                on_the_way[source] = true;
                data_port = port;
                ++num_data_ports;
            }
        }
        if (num_data_ports == 1 && ov::is_type<ov::op::v0::MatMul>(node)) {
            return node->input(data_port);
        }
    }
    throw Error(ErrorCode::kUnsupported,
                "the graph has no matrix product with weights (MatMul) before its logits");
}

}  // namespace shardline
