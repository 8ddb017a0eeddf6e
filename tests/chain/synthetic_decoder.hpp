#pragma once

#include <cstdint>
#include <memory>
#include <openvino/openvino.hpp>

namespace shardline::chain_test {

// A small stateful decoder built in code, with the shapes that matter for a cut and random weights
// that are the same at every call.
struct DecoderOptions {
    std::uint32_t num_layers = 3;
    std::int64_t hidden = 32;
    std::int64_t vocabulary = 64;
    // A second embedding whose slices join every layer: two tensors cross each boundary.
    bool per_layer_inputs = false;
    // Positions before the newest `window` are masked, by a comparison of distances; 0: none are.
    std::int64_t window = 0;
    // The last layer looks at the keys and values of the one before it.
    bool shared_keys = false;
    // Layer 1 also keeps a sum over time, which no attention looks at.
    bool running_sum = false;
    // Attention written out as matrix products and a softmax.
    bool decomposed_attention = false;
};

std::shared_ptr<ov::Model> make_decoder(const DecoderOptions& options);

}  // namespace shardline::chain_test
