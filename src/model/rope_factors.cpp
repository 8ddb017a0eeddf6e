#include "model/rope_factors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <openvino/core/graph_util.hpp>
#include <openvino/op/constant.hpp>
#include <openvino/op/cos.hpp>
#include <openvino/op/multiply.hpp>
#include <openvino/op/sin.hpp>
#include <set>
#include <vector>

#include "base/error.hpp"

namespace shardline {

namespace {

constexpr std::string_view kFactorsName = "rope_freqs.weight";
constexpr std::uint32_t kF32 = 0;

[[noreturn]] void refuse(const std::string& why) {
    throw Error(ErrorCode::kUnsupported, fmt::format("GGUF tensor '{}': {}", kFactorsName, why));
}

std::vector<float> read_factors(const GgufTensor& tensor, std::span<const std::byte> file) {
    if (tensor.type != kF32 || tensor.dimensions.size() != 1) {
        refuse("not a row of F32 numbers");
    }
    std::vector<float> factors(tensor.dimensions.front());
    std::memcpy(factors.data(), file.data() + tensor.offset, tensor.bytes);
    if (!std::all_of(factors.begin(), factors.end(),
                     [](float factor) { return std::isfinite(factor) && factor > 0.0F; })) {
        refuse("a factor is not a positive number");
    }
    return factors;
}

// The frequency table of an angle: the one constant of more than one value among the factors of
// the product that Sin or Cos take.
//
//     position, table -> Multiply -> (Multiply by a scalar) -> Sin, Cos
std::shared_ptr<ov::op::v0::Constant> find_table(ov::Output<ov::Node> angle) {
    std::vector<ov::Output<ov::Node>> products = {angle};
    while (!products.empty()) {
        const auto op = products.back().get_node_shared_ptr();
        products.pop_back();
        if (const auto table = ov::as_type_ptr<ov::op::v0::Constant>(op)) {
            if (ov::shape_size(table->get_shape()) > 1) {
                return table;
            }
        } else if (ov::is_type<ov::op::v1::Multiply>(op)) {
            products.push_back(op->input_value(0));
            products.push_back(op->input_value(1));
        }
    }
    return nullptr;
}

bool close(const std::vector<double>& one, const std::vector<double>& other) {
    constexpr double kTolerance = 1e-4;  // tables are computed in f32
    return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](double a, double b) {
        return std::abs(a - b) <= kTolerance * std::abs(b);
    });
}

}  // namespace

void apply_rope_factors(const std::shared_ptr<ov::Model>& model, const GgufHeader& header,
                        std::span<const std::byte> file) {
    const auto& tensors = header.tensors();
    const auto tensor = std::find_if(tensors.begin(), tensors.end(), [](const GgufTensor& one) {
        return one.name == kFactorsName;
    });
    if (tensor == tensors.end()) {
        return;
    }
    const std::vector<float> factors = read_factors(*tensor, file);
    std::set<std::shared_ptr<ov::op::v0::Constant>> tables;
    for (const auto& op : model->get_ops()) {
        if (ov::is_type<ov::op::v0::Cos>(op) || ov::is_type<ov::op::v0::Sin>(op)) {
            tables.insert(find_table(op->input_value(0)));
        }
    }
    if (tables.size() != 1 || *tables.begin() == nullptr) {
        refuse("the converted graph has not exactly one table of rotary frequencies");
    }
    const std::shared_ptr<ov::op::v0::Constant> table = *tables.begin();
    const std::vector<double> now = table->cast_vector<double>();
    if (now.size() != factors.size()) {
        refuse(fmt::format("{} factors for {} rotary frequencies", factors.size(), now.size()));
    }
    const std::string prefix = std::string(header.architecture()) + ".rope.";
    const double base = header.real(prefix + "freq_base").value_or(10000.0);
    std::vector<double> plain(now.size());
    std::vector<double> wanted(now.size());
    for (std::size_t i = 0; i < now.size(); ++i) {
        const double exponent = static_cast<double>(i) / static_cast<double>(now.size());
        plain[i] = std::pow(base, -exponent);
        wanted[i] = plain[i] / double{factors[i]};
    }
    if (close(now, wanted)) {
        return;
    }
    if (!close(now, plain)) {
        refuse("the converted graph has rotary frequencies of another kind");
    }
    const auto replacement =
        ov::op::v0::Constant::create(table->get_element_type(), table->get_shape(), wanted);
    replacement->set_friendly_name(table->get_friendly_name());
    ov::replace_node(table, replacement);
}

}  // namespace shardline
