#pragma once

#include <cstdint>
#include <openvino/openvino.hpp>
#include <vector>

#include "stage/stage_loader.hpp"

namespace shardline {

// The footprint of a part as make_paged() left it.
StageFootprint part_footprint(const ov::Model& part, const StageSpec& spec);

// Bytes of one KV block in each layer of such a part, from what the paged rewrite noted on its ops.
std::vector<std::uint64_t> layer_kv_bytes_per_block(const ov::Model& part,
                                                    const NumericSettings& numeric);

}  // namespace shardline
