#include "stage/numeric_choice.hpp"

#include <algorithm>
#include <array>
#include <openvino/op/constant.hpp>

#include "model/model_source.hpp"

namespace shardline {

namespace {

// Weights with a scale per group are stored as [outputs, groups, group].
constexpr std::size_t kGroupedRank = 3;
constexpr std::size_t kSmallestGroup = 16;  // below it integer kernels gain nothing

bool is_low_bit(const ov::element::Type& type) {
    constexpr std::array types = {ov::element::Type_t::u4, ov::element::Type_t::i4,
                                  ov::element::Type_t::u8, ov::element::Type_t::i8};
    return std::find(types.begin(), types.end(), type) != types.end();
}

}  // namespace

NumericSettings numeric_settings_for(const ov::Model& model) {
    NumericSettings settings;
    for (const auto& op : model.get_ops()) {
        const auto* constant = dynamic_cast<const ov::op::v0::Constant*>(op.get());
        if (constant == nullptr || !is_low_bit(constant->get_element_type()) ||
            constant->get_shape().size() != kGroupedRank) {
            continue;
        }
        const std::size_t group = constant->get_shape().back();
        if (group >= kSmallestGroup) {  // 1 is a zero point
            settings.dynamic_quantization_group =
                std::min(settings.dynamic_quantization_group, static_cast<std::uint32_t>(group));
        }
    }
    return settings;
}

NumericSettings numeric_settings_for(const std::filesystem::path& model_directory) {
    return numeric_settings_for(*ModelSource::open(model_directory).read_graph());
}

}  // namespace shardline
