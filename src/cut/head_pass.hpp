#pragma once

#include <openvino/openvino.hpp>

namespace shardline {

// Lets only the rows named by the new input "kept_rows" (i32, [kept]) into the LM head, whose data
// input is `head_input`: the vocabulary is wide, and a prompt needs the logits of one row. The
// graph must be paged already, so that one extent of the head's input is the rows.
void keep_rows(ov::Model& part, ov::Input<ov::Node> head_input);

// The axis along which a paged activation has the step's rows: its open extent.
std::int64_t rows_axis(const ov::PartialShape& shape);

}  // namespace shardline
