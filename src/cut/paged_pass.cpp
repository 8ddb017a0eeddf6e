#include <algorithm>
#include <array>
#include <openvino/op/constant.hpp>
#include <openvino/op/convert.hpp>
#include <openvino/op/reshape.hpp>
#include <openvino/op/unsqueeze.hpp>
#include <openvino/pass/manager.hpp>
#include <openvino/pass/sdpa_to_paged_attention.hpp>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cut/attention_layers.hpp"
#include "cut/boundary.hpp"
#include "cut/cut.hpp"
#include "cut/data_flow.hpp"
#include "cut/head_pass.hpp"
#include "model/openvino_error.hpp"

namespace shardline {

namespace {

// The paged rewrite looks for an input of this name where there are no token ids.
constexpr const char* kRewriteInput = "inputs_embeds";

// A paged graph has one token per sequence of its batch: rows are the first open extent, every
// other open extent is 1.
std::vector<std::int64_t> paged_shape(const ov::PartialShape& shape) {
    std::vector<std::int64_t> paged;
    bool rows_seen = false;
    for (const ov::Dimension& dimension : shape) {
        if (dimension.is_static()) {
            paged.push_back(dimension.get_length());
        } else {
            paged.push_back(rows_seen ? 1 : -1);
            rows_seen = true;
        }
    }
    return paged;
}

// Elements in one row: the product of the extents that are not rows.
std::int64_t row_width(const ov::PartialShape& shape) {
    std::int64_t width = 1;
    for (const ov::Dimension& dimension : shape) {
        width *= dimension.is_static() ? dimension.get_length() : 1;
    }
    return width;
}

ov::Output<ov::Node> reshaped(const ov::Output<ov::Node>& from,
                              const std::vector<std::int64_t>& shape) {
    return std::make_shared<ov::op::v1::Reshape>(
        from, ov::op::v0::Constant::create(ov::element::i64, {shape.size()}, shape), false);
}

void feed_through(const std::shared_ptr<ov::op::v0::Parameter>& input,
                  const std::vector<std::int64_t>& shape) {
    const auto targets = input->output(0).get_target_inputs();
    const auto fed = reshaped(input, shape);
    for (auto target : targets) {
        target.replace_source_output(fed);
    }
}

// The crossing inputs become [rows, width], whatever rank they had.
void flatten_crossing_inputs(const ov::Model& part, bool first_is_unsqueezed) {
    bool first = true;
    for (const auto& input : part.get_parameters()) {
        if (!is_crossing_input(*input)) {
            continue;
        }
        const std::vector<std::int64_t> shape = paged_shape(input->get_partial_shape());
        const std::int64_t width = row_width(input->get_partial_shape());
        const bool fits =
            first && first_is_unsqueezed && shape == std::vector<std::int64_t>{-1, 1, width};
        if (!fits) {
            feed_through(input, shape);
        }
        input->set_partial_shape({-1, width});
        first = false;
    }
}

// Embedding and head alone have no attention to rewrite: they are functions of rows once their
// integer inputs are.
void flatten_step_inputs(const ov::Model& part) {
    for (const auto& input : part.get_parameters()) {
        if (is_crossing_input(*input)) {
            continue;
        }
        const std::string name = port_name(*input);
        if (name != "input_ids" && name != "position_ids") {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("a part without layers needs the input '{}', which a paged "
                                    "step does not have",
                                    name));
        }
        feed_through(input, {-1, 1});
        input->set_partial_shape({-1});
    }
}

std::shared_ptr<ov::op::v0::Parameter> first_crossing_input(const ov::Model& part) {
    const auto& inputs = part.get_parameters();
    const auto found = std::find_if(inputs.begin(), inputs.end(),
                                    [](const auto& input) { return is_crossing_input(*input); });
    return found == inputs.end() ? nullptr : *found;
}

void rewrite_attention(const std::shared_ptr<ov::Model>& part) {
    const auto hidden = first_crossing_input(*part);
    std::unordered_set<std::string> wire_names;
    if (hidden != nullptr) {
        wire_names = hidden->get_output_tensor(0).get_names();
        hidden->get_output_tensor(0).set_names({kRewriteInput});
    }
    const std::int64_t width = hidden != nullptr ? hidden->get_partial_shape()[1].get_length() : 0;
    ov::pass::Manager manager;
    manager.set_per_pass_validation(false);
    manager.register_pass<ov::pass::SDPAToPagedAttention>();
    manager.run_passes(part);
    if (hidden != nullptr) {
        hidden->set_partial_shape({-1, width});
        hidden->get_output_tensor(0).set_names(wire_names);
        part->validate_nodes_and_infer_types();
    }
}

void check_rewritten(const ov::Model& part, const PartRange& range) {
    std::uint32_t num_paged = 0;
    for (const auto& node : part.get_ordered_ops()) {
        if (is_attention(*node)) {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("the paged rewrite does not recognise the attention '{}'",
                                    node->get_friendly_name()));
        }
        num_paged += std::string_view(node->get_type_name()) == "PagedAttentionExtension";
    }
    if (num_paged != range.layers.size()) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("the paged rewrite made {} paged attentions of {} layers",
                                num_paged, range.layers.size()));
    }
}

// Inputs that nothing reads any more go; of the rest a paged step must have all.
void check_inputs(ov::Model& part) {
    constexpr std::array<std::string_view, 9> kKnown = {
        "input_ids",          "position_ids",  "past_lens",
        "subsequence_begins", "block_indices", "block_indices_begins",
        "max_context_len",    "kept_rows",     "boundary."};
    const ov::ParameterVector inputs = part.get_parameters();
    for (const auto& input : inputs) {
        const std::string name = port_name(*input);
        const bool known = name.starts_with("boundary.") || name.starts_with("key_cache.") ||
                           name.starts_with("value_cache.") ||
                           std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end();
        if (input->output(0).get_target_inputs().empty()) {
            part.remove_parameter(input);
        } else if (!known) {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("the input '{}' is left after the paged rewrite, and a paged "
                                    "step does not have it",
                                    name));
        }
    }
}

// The results become [rows, width] and keep their names.
void flatten_results(ov::Model& part) {
    for (const auto& result : part.get_results()) {
        const std::string name = port_name(*result);
        ov::Output<ov::Node> rows = result->input_value(0);
        auto names = rows.get_names();
        names.erase(name);
        rows.get_tensor().set_names(names);
        if (rows.get_element_type() != ov::element::f32 && name == "logits") {
            rows = std::make_shared<ov::op::v0::Convert>(rows, ov::element::f32);
        }
        rows = reshaped(rows, {-1, row_width(rows.get_partial_shape())});
        result->input(0).replace_source_output(rows);
        rows.get_tensor().set_names({name});
    }
    part.validate_nodes_and_infer_types();
}

void rewrite(const std::shared_ptr<ov::Model>& part, const PartRange& range) {
    std::optional<ov::Input<ov::Node>> head_input;
    if (range.with_head) {
        head_input.emplace(find_head_input(*part, trace_data_flow(*part)));
    }
    const bool with_layers = range.layers.size() > 0;
    flatten_crossing_inputs(*part, with_layers);
    if (with_layers) {
        rewrite_attention(part);
        check_rewritten(*part, range);
    } else {
        flatten_step_inputs(*part);
        part->validate_nodes_and_infer_types();
    }
    if (head_input) {
        keep_rows(*part, *head_input);
    }
    check_inputs(*part);
    flatten_results(*part);
}

}  // namespace

void make_paged(const std::shared_ptr<ov::Model>& part, const PartRange& range) {
    try {
        rewrite(part, range);
    } catch (const ov::Exception& fault) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("the paged rewrite of {} failed: {}", to_string(range),
                                openvino_reason(fault.what())));
    }
}

}  // namespace shardline
