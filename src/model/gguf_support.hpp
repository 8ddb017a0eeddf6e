#pragma once

#include "model/gguf_header.hpp"

namespace shardline {

// Throws Error naming the architecture, key or tensor when the file is sound as a container, but
// OpenVINO's GGUF front end cannot make the model of it that the file describes, or would stumble
// over it: that front end trusts what it reads.
void require_importable(const GgufHeader& header);

}  // namespace shardline
