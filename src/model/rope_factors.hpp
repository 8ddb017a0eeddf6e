#pragma once

#include <memory>
#include <openvino/core/model.hpp>
#include <span>

#include "model/gguf_header.hpp"

namespace shardline {

// Divides the rotary frequencies of a converted GGUF model by the file's own factors (tensor
// rope_freqs.weight, as Llama 3.1 and later have it), which OpenVINO's front end leaves out:
// without them short prompts look fine and long ones fall apart. Does nothing when the file has no
// such tensor or the graph has the factors already. `file` are the bytes the header was read from.
// Throws Error(kUnsupported) when there is no telling where in the graph the factors belong.
void apply_rope_factors(const std::shared_ptr<ov::Model>& model, const GgufHeader& header,
                        std::span<const std::byte> file);

}  // namespace shardline
