#include <algorithm>
#include <openvino/op/constant.hpp>
#include <openvino/op/convert_like.hpp>
#include <openvino/op/parameter.hpp>
#include <openvino/op/reshape.hpp>
#include <openvino/op/result.hpp>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cut/attention_layers.hpp"
#include "cut/boundary.hpp"
#include "cut/cut.hpp"
#include "cut/data_flow.hpp"
#include "cut/shape_rewiring.hpp"
#include "model/openvino_error.hpp"

namespace shardline {

namespace {

std::string wire_name(std::size_t boundary, std::size_t index) {
    return fmt::format("boundary.{}.{}", boundary, index);
}

void check_range(const PartRange& range, std::size_t num_layers) {
    const bool empty = range.layers.first == range.layers.last;
    const bool one_end = range.with_embedding != range.with_head;
    const bool ordered = range.layers.first <= range.layers.last && range.layers.last <= num_layers;
    const bool ends_fit = empty ? one_end
                                : (!range.with_embedding || range.layers.first == 0) &&
                                      (!range.with_head || range.layers.last == num_layers);
    if (!ordered || !ends_fit) {
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("layers {} to {} with{} embedding and with{} head are no part of a "
                        "model of {} layers",
                        range.layers.first, range.layers.last, range.with_embedding ? "" : "out",
                        range.with_head ? "" : "out", num_layers));
    }
}

// A tensor of its own for the name: what passes straight through a part has another one already.
ov::Output<ov::Node> named_output(const ov::Output<ov::Node>& tensor, const std::string& name) {
    const auto same = ov::op::v0::Constant::create(
        ov::element::i64, {tensor.get_partial_shape().size()},
        std::vector<std::int64_t>(tensor.get_partial_shape().size(), 0));
    const auto output = std::make_shared<ov::op::v1::Reshape>(tensor, same, true);
    output->get_output_tensor(0).set_names({name});
    return output;
}

// Cuts one part out of one graph; lives for one call of cut_part.
class Cutter final {
public:
    Cutter(std::shared_ptr<ov::Model> model, const PartRange& range)
        : model_(std::move(model)),
          range_(range),
          flow_(trace_data_flow(*model_)),
          layers_(find_attention_layers(*model_, flow_)) {
        check_range(range_, layers_.size());
        boundaries_ = find_boundaries(*model_, flow_, layers_);
        if (range_.layers.size() == 0) {
            const auto end = static_cast<std::uint32_t>(range_.with_head ? layers_.size() : 0);
            range_.layers = {end, end};
        }
        for (std::uint32_t k = 0; k < layers_.size(); ++k) {
            for (std::uint32_t c = 0; c < layers_[k].caches.size(); ++c) {
                const auto& nodes = layers_[k].caches[c].nodes;
                for (std::uint32_t i = 0; i < nodes.size(); ++i) {
                    cache_place_.emplace(nodes[i].get(), CachePlace{k, c, i});
                }
            }
        }
    }

    std::shared_ptr<ov::Model> cut();

private:
    struct CachePlace {
        std::uint32_t layer;
        std::uint32_t cache;
        std::uint32_t step;
    };

    bool before_part(std::uint32_t position) const {
        return !range_.with_embedding && position <= boundaries_.cuts[range_.layers.first];
    }
    bool after_part(std::uint32_t position) const {
        return !range_.with_head && position > boundaries_.cuts[range_.layers.last];
    }
    std::uint32_t position_of(const ov::Node& node) const;
    bool is_foreign(const ov::Node& source) const;
    ov::Output<ov::Node> counterpart(const ov::Output<ov::Node>& source) const;
    void collect_ends();
    void walk();
    std::vector<ShapeSource> shape_sources() const;
    void take_crossing_inputs();
    ov::ParameterVector reached_parameters() const;

    std::shared_ptr<ov::Model> model_;
    PartRange range_;
    DataFlow flow_;
    std::vector<AttentionLayer> layers_;
    Boundaries boundaries_;
    std::unordered_map<const ov::Node*, CachePlace> cache_place_;

    ov::ResultVector results_;
    ov::SinkVector sinks_;
    ov::ParameterVector crossing_inputs_;
    std::unordered_set<const ov::Node*> needed_;
    std::vector<ForeignShape> foreign_;
};

// Of what was added to the graph since, as of all that is not data: kNotOnTheWay.
std::uint32_t Cutter::position_of(const ov::Node& node) const {
    const auto found = flow_.index.find(&node);
    return found == flow_.index.end() ? kNotOnTheWay : boundaries_.position[found->second];
}

// Whether a ShapeOf in the part may not look at `source`.
bool Cutter::is_foreign(const ov::Node& source) const {
    const std::uint32_t index = flow_.index_of(&source);
    if (flow_.kinds[index] == FlowKind::kState) {
        const auto place = cache_place_.find(&source);
        const bool own = place != cache_place_.end() &&
                         place->second.layer >= range_.layers.first &&
                         place->second.layer < range_.layers.last;
        return !own;
    }
    if (flow_.kinds[index] < FlowKind::kTokens) {
        return false;
    }
    // Data that feed nothing but shapes have no place in the line.
    const std::uint32_t position = boundaries_.position[index];
    return position == kNotOnTheWay || before_part(position) || after_part(position);
}

ov::Output<ov::Node> Cutter::counterpart(const ov::Output<ov::Node>& source) const {
    const auto place = cache_place_.find(source.get_node());
    if (place == cache_place_.end() || range_.layers.size() == 0) {
        return {};
    }
    // The first layer's: the caches of later ones depend on what the shape is for.
    const auto& caches = layers_[range_.layers.first].caches;
    if (place->second.cache >= caches.size() ||
        place->second.step >= caches[place->second.cache].nodes.size()) {
        return {};
    }
    const auto& twin = caches[place->second.cache].nodes[place->second.step];
    const bool same_role = twin->get_type_info() == source.get_node()->get_type_info();
    return same_role ? twin->output(source.get_index()) : ov::Output<ov::Node>();
}

void Cutter::collect_ends() {
    if (range_.with_head) {
        results_ = {logits_result(*model_)};
        results_.front()->get_output_tensor(0).add_names({"logits"});
    } else {
        const auto& crossing = boundaries_.crossing[range_.layers.last];
        for (std::size_t j = 0; j < crossing.size(); ++j) {
            const std::string name = wire_name(range_.layers.last, j);
            auto result = std::make_shared<ov::op::v0::Result>(named_output(crossing[j], name));
            result->set_friendly_name(name);
            results_.push_back(result);
        }
    }
    for (std::uint32_t k = range_.layers.first; k < range_.layers.last; ++k) {
        for (const CachePath& cache : layers_[k].caches) {
            sinks_.push_back(cache.assign);
        }
    }
}

// Up from the ends to where the part begins, noting the shapes that look out of it.
void Cutter::walk() {
    std::vector<ov::Node*> stack;
    for (const auto& result : results_) {
        stack.push_back(result.get());
    }
    for (const auto& sink : sinks_) {
        stack.push_back(sink.get());
    }
    while (!stack.empty()) {
        ov::Node* node = stack.back();
        stack.pop_back();
        if (!needed_.insert(node).second) {
            continue;
        }
        for (std::size_t port = 0; port < node->get_input_size(); ++port) {
            ov::Node* source = node->get_input_node_ptr(port);
            if (carries_data(*node, port)) {
                const std::uint32_t position = position_of(*source);
                if (position == kNotOnTheWay || !before_part(position)) {
                    stack.push_back(source);
                }
            } else if (!is_foreign(*source)) {
                stack.push_back(source);
            } else if (is_shape_of(*node)) {
                foreign_.push_back(
                    {node->shared_from_this(), counterpart(node->input_value(port))});
            } else {
                node->input(port).replace_source_output(
                    ov::op::v0::Constant::create(source->get_output_element_type(0), {}, {0}));
            }
        }
    }
    // One order, whatever the order of the walk.
    std::sort(foreign_.begin(), foreign_.end(), [&](const auto& a, const auto& b) {
        return flow_.index_of(a.shape_of.get()) < flow_.index_of(b.shape_of.get());
    });
}

std::vector<ShapeSource> Cutter::shape_sources() const {
    std::vector<ShapeSource> sources;
    for (std::size_t j = 0; j < crossing_inputs_.size(); ++j) {
        sources.push_back(
            {boundaries_.crossing[range_.layers.first][j], crossing_inputs_[j]->output(0)});
    }
    if (range_.layers.size() > 0) {
        for (const CachePath& cache : layers_[range_.layers.first].caches) {
            for (const auto& node : cache.nodes) {
                sources.push_back({node->output(0), node->output(0)});
            }
        }
    }
    for (const auto& parameter : model_->get_parameters()) {
        if (range_.with_embedding || flow_.kind_of(parameter.get()) == FlowKind::kStep) {
            sources.push_back({parameter->output(0), parameter->output(0)});
        }
    }
    return sources;
}

void Cutter::take_crossing_inputs() {
    if (range_.with_embedding) {
        return;
    }
    const auto& crossing = boundaries_.crossing[range_.layers.first];
    for (std::size_t j = 0; j < crossing.size(); ++j) {
        const std::string name = wire_name(range_.layers.first, j);
        auto input = std::make_shared<ov::op::v0::Parameter>(crossing[j].get_element_type(),
                                                             crossing[j].get_partial_shape());
        input->set_friendly_name(name);
        input->get_output_tensor(0).set_names({name});
        crossing_inputs_.push_back(input);
    }
}

ov::ParameterVector Cutter::reached_parameters() const {
    std::unordered_set<const ov::Node*> reached;
    std::vector<const ov::Node*> stack;
    for (const auto& result : results_) {
        stack.push_back(result.get());
    }
    for (const auto& sink : sinks_) {
        stack.push_back(sink.get());
    }
    while (!stack.empty()) {
        const ov::Node* node = stack.back();
        stack.pop_back();
        if (!reached.insert(node).second) {
            continue;
        }
        for (std::size_t port = 0; port < node->get_input_size(); ++port) {
            stack.push_back(node->get_input_node_ptr(port));
        }
    }
    ov::ParameterVector parameters = crossing_inputs_;
    for (const auto& parameter : model_->get_parameters()) {
        if (!reached.contains(parameter.get())) {
            continue;
        }
        if (!range_.with_embedding && flow_.kind_of(parameter.get()) != FlowKind::kStep) {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("the part {} would need the input '{}', which stays with the "
                                    "first part",
                                    to_string(range_), port_name(*parameter)));
        }
        parameters.push_back(parameter);
    }
    return parameters;
}

std::shared_ptr<ov::Model> Cutter::cut() {
    collect_ends();
    walk();
    take_crossing_inputs();
    ShapeRewiring rewiring(flow_, foreign_, shape_sources());
    for (std::size_t j = 0; j < crossing_inputs_.size(); ++j) {
        const auto& tensor = boundaries_.crossing[range_.layers.first][j];
        for (auto target : tensor.get_target_inputs()) {
            const ov::Node& user = *target.get_node();
            if (needed_.contains(&user) && carries_data(user, target.get_index())) {
                target.replace_source_output(crossing_inputs_[j]->output(0));
            }
        }
    }
    rewiring.apply();
    auto part = std::make_shared<ov::Model>(results_, sinks_, reached_parameters(),
                                            model_->get_friendly_name());
    // Carries the hints that the model's author wrote for the runtime.
    part->get_rt_info() = model_->get_rt_info();
    return part;
}

}  // namespace

std::shared_ptr<ov::Model> cut_part(std::shared_ptr<ov::Model> model, const PartRange& range) {
    try {
        return Cutter(std::move(model), range).cut();
    } catch (const ov::Exception& fault) {
        throw Error(ErrorCode::kUnsupported, fmt::format("cannot cut {}: {}", to_string(range),
                                                         openvino_reason(fault.what())));
    }
}

}  // namespace shardline
