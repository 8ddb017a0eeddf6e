#include "stage/numeric_choice.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <openvino/op/constant.hpp>
#include <openvino/op/convert.hpp>
#include <openvino/op/matmul.hpp>
#include <openvino/op/multiply.hpp>
#include <openvino/op/parameter.hpp>
#include <openvino/op/reshape.hpp>
#include <vector>

namespace shardline {
namespace {

// x * W with W [8, 64] in 8 bits and a scale per `group`.
std::shared_ptr<ov::Model> product_with_groups_of(std::size_t group) {
    const auto x =
        std::make_shared<ov::op::v0::Parameter>(ov::element::f32, ov::PartialShape{-1, 64});
    const ov::Shape shape = {8, 64 / group, group};
    const auto weight =
        ov::op::v0::Constant::create(ov::element::i8, shape, std::vector<std::int8_t>(8 * 64, 3));
    const auto scale = ov::op::v0::Constant::create(ov::element::f32, {8, 64 / group, 1},
                                                    std::vector<float>(8 * 64 / group, 0.5F));
    const auto wide = std::make_shared<ov::op::v1::Multiply>(
        std::make_shared<ov::op::v0::Convert>(weight, ov::element::f32), scale);
    const auto flat = std::make_shared<ov::op::v1::Reshape>(
        wide, ov::op::v0::Constant::create(ov::element::i64, {2}, {8, 64}), false);
    const auto product = std::make_shared<ov::op::v0::MatMul>(x, flat, false, true);
    return std::make_shared<ov::Model>(ov::OutputVector{product}, ov::ParameterVector{x});
}

TEST(NumericChoice, FollowsTheSmallestWeightGroup) {
    EXPECT_EQ(numeric_settings_for(*product_with_groups_of(16)).dynamic_quantization_group, 16U);
    EXPECT_EQ(numeric_settings_for(*product_with_groups_of(32)).dynamic_quantization_group, 32U);
    EXPECT_EQ(numeric_settings_for(*product_with_groups_of(64)).dynamic_quantization_group, 32U);
    EXPECT_EQ(numeric_settings_for(*product_with_groups_of(8)).dynamic_quantization_group, 32U);
}

}  // namespace
}  // namespace shardline
