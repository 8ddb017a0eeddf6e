#include "cut/head_pass.hpp"

#include <memory>
#include <openvino/op/constant.hpp>
#include <openvino/op/gather.hpp>
#include <openvino/op/parameter.hpp>

namespace shardline {

void keep_rows(ov::Model& part, ov::Input<ov::Node> head_input) {
    const auto kept =
        std::make_shared<ov::op::v0::Parameter>(ov::element::i32, ov::PartialShape{-1});
    kept->set_friendly_name("kept_rows");
    kept->get_output_tensor(0).set_names({"kept_rows"});
    const ov::Output<ov::Node> rows = head_input.get_source_output();
    const auto axis =
        ov::op::v0::Constant::create(ov::element::i64, {}, {rows_axis(rows.get_partial_shape())});
    head_input.replace_source_output(std::make_shared<ov::op::v8::Gather>(rows, kept, axis));
    part.add_parameters({kept});
    part.validate_nodes_and_infer_types();
}

std::int64_t rows_axis(const ov::PartialShape& shape) {
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        if (shape[axis].is_dynamic()) {
            return static_cast<std::int64_t>(axis);
        }
    }
    return 0;
}

}  // namespace shardline
