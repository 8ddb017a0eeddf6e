#include "stage/part_ports.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "base/error.hpp"
#include "stage/kv_pool.hpp"
#include "stage/ov_tensor.hpp"

namespace shardline {

namespace {

constexpr std::array<std::string_view, 7> kTables = {
    "past_lens",    "subsequence_begins", "block_indices", "block_indices_begins",
    "position_ids", "max_context_len",    "kept_rows"};

bool is_activation_name(const std::string& name) {
    return name.rfind("boundary.", 0) == 0 || name == "input_ids" || name == "logits";
}

// A port may carry names of an earlier life; the one that steps know it by comes first.
std::string port_name(const ov::Output<const ov::Node>& port) {
    for (const std::string& name : port.get_names()) {
        if (is_activation_name(name)) {
            return name;
        }
    }
    return port.get_names().empty() ? port.get_node()->get_friendly_name() : port.get_any_name();
}

ActivationPort activation_port(const std::string& name, const ov::Output<const ov::Node>& port,
                               const PartRange& range) {
    const ov::PartialShape& shape = port.get_partial_shape();
    const bool fixed = shape.rank().is_static() && shape.size() > 0 &&
                       (shape.size() == 1 || shape[shape.size() - 1].is_static());
    if (!fixed && name != "input_ids") {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("part {}: the rows of '{}' {} have no fixed size", to_string(range),
                                name, shape.to_string()));
    }
    std::size_t row_elements = 1;
    for (std::size_t extent : shape_of_rows(shape, 1)) {
        row_elements *= extent;
    }
    return {name, port, from_ov(port.get_element_type()), row_elements};
}

void check_table(const std::string& name, const ov::Output<const ov::Node>& port,
                 const PartRange& range) {
    const ov::PartialShape& shape = port.get_partial_shape();
    const bool fits_type =
        port.get_element_type() == ov::element::i32 || port.get_element_type() == ov::element::i64;
    const std::size_t max_rank = name == "max_context_len" ? 1 : 2;
    if (shape.rank().is_dynamic() || shape.size() > max_rank || !fits_type) {
        throw Error(
            ErrorCode::kUnsupported,
            fmt::format("part {} wants '{}' as {} {}, which no step carries", to_string(range),
                        name, port.get_element_type().get_type_name(), shape.to_string()));
    }
}

}  // namespace

bool PartPorts::has_table(const std::string& name) const {
    return std::any_of(tables.begin(), tables.end(),
                       [&](const TablePort& table) { return table.name == name; });
}

PartPorts describe_ports(const ov::CompiledModel& compiled, const PartRange& range) {
    PartPorts ports;
    for (const ov::Output<const ov::Node>& port : compiled.inputs()) {
        if (is_kv_port(port)) {
            continue;
        }
        const std::string name = port_name(port);
        if (std::find(kTables.begin(), kTables.end(), name) != kTables.end()) {
            check_table(name, port, range);
            ports.tables.push_back({name, port});
        } else if (is_activation_name(name) && (name != "input_ids" || range.with_embedding)) {
            ports.inputs.push_back(activation_port(name, port, range));
        } else {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("part {} wants an input '{}' that no step carries to it",
                                    to_string(range), name));
        }
    }
    for (const ov::Output<const ov::Node>& port : compiled.outputs()) {
        ports.outputs.push_back(activation_port(port_name(port), port, range));
    }
    return ports;
}

const Tensor* find_tensor(const Activations& activations, const std::string& name) {
    const auto found = std::find_if(activations.begin(), activations.end(),
                                    [&](const Tensor& tensor) { return tensor.name == name; });
    return found == activations.end() ? nullptr : &*found;
}

void check_activations(const PartPorts& ports, const Activations& activations, std::size_t rows,
                       const std::string& part) {
    for (const ActivationPort& input : ports.inputs) {
        const Tensor* tensor = find_tensor(activations, input.name);
        if (tensor == nullptr) {
            throw Error(ErrorCode::kCorrupt,
                        fmt::format("a step lacks '{}', which part {} takes", input.name, part));
        }
        const std::size_t elements = rows * input.row_elements;
        const bool leads_with_rows =
            !tensor->shape.empty() && tensor->shape.front() == static_cast<std::int64_t>(rows);
        if (tensor->type != input.type || !leads_with_rows ||
            num_elements(tensor->shape) != elements ||
            tensor->bytes.size() != elements * element_size_bytes(input.type)) {
            throw Error(ErrorCode::kCorrupt,
                        fmt::format("'{}' is {} [{}] of {} bytes; part {} takes {} rows of {} {}",
                                    tensor->name, element_type_name(tensor->type),
                                    fmt::join(tensor->shape, ","), tensor->bytes.size(), part, rows,
                                    input.row_elements, element_type_name(input.type)));
        }
    }
    if (activations.size() != ports.inputs.size()) {
        std::string brought;
        for (const Tensor& tensor : activations) {
            brought += (brought.empty() ? "" : ", ") + tensor.name;
        }
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("a step brings {} to part {}, which takes {} of them", brought,
                                part, ports.inputs.size()));
    }
}

void check_token_ids(const Tensor& ids, std::int64_t vocabulary) {
    for (std::size_t i = 0; i < ids.bytes.size() / sizeof(std::int64_t); ++i) {
        std::int64_t id = 0;
        std::memcpy(&id, ids.bytes.data() + i * sizeof(id), sizeof(id));
        if (id < 0 || (vocabulary > 0 && id >= vocabulary)) {
            throw Error(ErrorCode::kInvalidArgument,
                        fmt::format("token id {} is outside the vocabulary of {}", id, vocabulary));
        }
    }
}

std::int64_t num_embedding_rows(const ov::Model& graph) {
    std::int64_t rows = 0;
    for (const std::shared_ptr<ov::Node>& op : graph.get_ordered_ops()) {
        if (std::string_view(op->get_type_name()) != "Gather" ||
            op->get_input_partial_shape(0).rank().is_dynamic()) {
            continue;
        }
        std::shared_ptr<ov::Node> ids = op->get_input_node_shared_ptr(1);
        while (ids->get_input_size() > 0 && std::string_view(ids->get_type_name()) != "Parameter" &&
               ids->get_output_size() == 1) {
            ids = ids->get_input_node_shared_ptr(0);
        }
        const ov::Dimension extent = op->get_input_partial_shape(0)[0];
        if (ids->output(0).get_names().count("input_ids") > 0 && extent.is_static()) {
            rows = rows == 0 ? extent.get_length() : std::min(rows, extent.get_length());
        }
    }
    return rows;
}

}  // namespace shardline
