#pragma once

#include <memory>
#include <openvino/openvino.hpp>

#include "stage/stage_loader.hpp"
#include "step/stage_executor.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// Compiles a paged part and gives it its KV pool; the executor owns the device memory of both.
// run() is called from one thread. `graph` is what make_paged() left; it is dropped once compiled.
//
// What goes in and out, with r rows in a step and k of them kept ("rows" below are the leading
// extent of a tensor; boundaries may cross with several tensors, each treated alike):
//
//     part                          in                        out
//     embed [+ layers]              input_ids, r rows         boundary.K.J, r rows
//     layers                        boundary.F.J, r rows      boundary.L.J, r rows
//     either, spec.keeps_rows       as above                  boundary.L.J, k rows
//     ... layers + head             as above                  logits, k rows
//     head alone                    boundary.N.J, r or k rows logits, k rows
//
// So the stage before a head that stands alone has keeps_rows set (its k rows are what goes over
// the wire), and the head computes all rows it is given; it also takes r rows and picks the kept
// ones. Kept rows may be none (a prompt chunk whose logits nobody needs): then KV is written and
// tensors of no rows leave.
std::unique_ptr<StageExecutor> make_paged_executor(std::shared_ptr<ov::Model> graph,
                                                   const StageSpec& spec,
                                                   const LoadProgress& progress);

}  // namespace shardline
