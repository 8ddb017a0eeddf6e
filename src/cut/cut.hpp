#pragma once

#include <cstdint>
#include <memory>
#include <openvino/openvino.hpp>
#include <string>
#include <vector>

#include "step/stage_spec.hpp"

namespace shardline {

// One tensor through which data flow over a boundary.
struct CrossingTensor {
    std::string name;  // on the wire and as port name: "boundary.K.J", J counted from 0
    ov::PartialShape shape;
    ov::element::Type type;
};

// Boundary k lies before layer k; boundary 0 after the embedding, boundary num_layers before the
// LM head.
struct LayerMap {
    std::uint32_t num_layers = 0;
    std::vector<std::vector<CrossingTensor>> boundaries;  // num_layers + 1
    std::vector<std::uint64_t> layer_weights_bytes;       // per layer, constants not shared
    std::uint64_t embedding_bytes = 0;
    std::uint64_t head_bytes = 0;  // 0 extra when tied with the embedding
    std::uint64_t shared_bytes = 0;
};

// Found by liveness in the graph, never by names of a model family. Throws Error(kUnsupported)
// that names the op or state for which there is no clean boundary (a layer without attention
// state, a stateless graph, ...).
LayerMap map_layers(const std::shared_ptr<ov::Model>& model);

// The part of `model` in `range` with its states, as a graph of its own; consumes the graph it is
// given. Inputs are those of the model that the part needs plus the crossing tensors of the first
// boundary; results are the crossing tensors of the last boundary, or "logits" alone. A part
// without the embedding never has token ids as an input. Constants are shared, not copied.
// The bare head starts at the last boundary, the bare embedding ends at the first one.
std::shared_ptr<ov::Model> cut_part(std::shared_ptr<ov::Model> model, const PartRange& range);

// Rewrites a part's stateful attention to paged attention in place; a part without layers becomes
// a plain function of rows. `part` comes from cut_part, for the same range. Afterwards
//
//     input_ids, position_ids      i64 [rows]        where the part needs them
//     boundary.K.J                 [rows, width]     crossing inputs and results
//     past_lens, subsequence_begins, block_indices, block_indices_begins, max_context_len,
//     key_cache.N, value_cache.N   as the runtime defines them, N counted from the part's start
//     kept_rows                    i32 [kept]        with the head
//     logits                       f32 [kept, vocabulary]
//
// and nothing else is left; inputs that no op reads are gone. Logits of kept rows have the same
// bits whichever rows are kept beside them.
// Throws Error(kUnsupported) naming the op when an attention is left unconverted, or the input
// that a paged step does not have.
void make_paged(const std::shared_ptr<ov::Model>& part, const PartRange& range);

}  // namespace shardline
