#pragma once

#include <memory>
#include <openvino/openvino.hpp>

#include "step/stage_spec.hpp"
#include "stage/stage_loader.hpp"
#include "step/stage_executor.hpp"

namespace shardline {


// A compiled part with its KV pool. Owns the device memory of both.
// run() is called from one thread. Inputs and outputs are the crossing tensors by name;
// "input_ids" for a part with the embedding, "logits" for one with the head.
std::unique_ptr<StageExecutor> make_paged_executor(std::shared_ptr<ov::Model> graph,
                                                   const StageSpec& spec,
                                                   const LoadProgress& progress);

}  // namespace shardline
