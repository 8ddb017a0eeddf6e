#pragma once

#include <cstdint>
#include <openvino/openvino.hpp>
#include <string>
#include <vector>

#include "step/stage_spec.hpp"
#include "step/step.hpp"

namespace shardline {

// An activation's way into or out of a compiled part. On the wire it is [rows, row_elements]
// (token ids: [rows]); the port may have other dimensions of 1 around the rows.
struct ActivationPort {
    std::string name;
    ov::Output<const ov::Node> port;
    ElementType type = ElementType::kF32;
    std::size_t row_elements = 0;
};

// An index input, fed from the plan (see StepTables).
struct TablePort {
    std::string name;
    ov::Output<const ov::Node> port;
};

// The ports of a paged part by what they carry; KV ports are KvPool's.
struct PartPorts {
    std::vector<ActivationPort> inputs;
    std::vector<ActivationPort> outputs;
    std::vector<TablePort> tables;

    bool has_table(const std::string& name) const;
};

// Throws Error(kUnsupported) that names an input no step carries, or an activation whose rows have
// no fixed size.
PartPorts describe_ports(const ov::CompiledModel& compiled, const PartRange& range);

// Throws Error(kCorrupt) that names the tensor unless `activations` are the part's inputs, each
// once, with `rows` rows.
void check_activations(const PartPorts& ports, const Activations& activations, std::size_t rows,
                       const std::string& part);

// Null when there is none of that name.
const Tensor* find_tensor(const Activations& activations, const std::string& name);

// Throws Error(kInvalidArgument) on an id outside [0, vocabulary); 0: only negative ones.
void check_token_ids(const Tensor& ids, std::int64_t vocabulary);

// Rows of the table in which the graph looks up token ids; 0 when it has none. An id beyond them
// would read foreign memory without an error.
std::int64_t num_embedding_rows(const ov::Model& graph);

}  // namespace shardline
