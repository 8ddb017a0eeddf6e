#pragma once

#include <openvino/openvino.hpp>

#include "stage/stage_loader.hpp"

namespace shardline {

// The footprint of a part as make_paged() left it.
StageFootprint part_footprint(const ov::Model& part, const StageSpec& spec);

}  // namespace shardline
