#include "stage/footprint.hpp"

#include <algorithm>
#include <numeric>
#include <openvino/op/constant.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cut/cut.hpp"
#include "model/model_source.hpp"

namespace shardline {

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The runtime with its kernels, measured on the CPU (bench step prints what is really used).
constexpr std::uint64_t kRuntimeBytes = 48 * kMiB;

using OpPort = ov::Input<ov::Node>;

bool is_kind(const ov::Node& op, std::initializer_list<std::string_view> kinds) {
    return std::find(kinds.begin(), kinds.end(), op.get_type_name()) != kinds.end();
}

// Where a constant ends up, past what only unpacks it.
std::vector<OpPort> uses_of(const ov::Node& constant) {
    std::vector<OpPort> uses;
    std::vector<ov::Output<const ov::Node>> open = {constant.output(0)};
    while (!open.empty()) {
        const auto output = open.back();
        open.pop_back();
        for (const auto& target : output.get_target_inputs()) {
            ov::Node* op = const_cast<ov::Node*>(target.get_node());
            if (is_kind(*op, {"Convert", "Multiply", "Subtract", "Reshape", "Transpose"}) &&
                op->get_output_partial_shape(0).is_static()) {
                open.push_back(op->output(0));
            } else {
                uses.push_back(op->input(target.get_index()));
            }
        }
    }
    return uses;
}

bool is_low_bit(const ov::element::Type& type) {
    return type == ov::element::u4 || type == ov::element::i4 || type == ov::element::u8 ||
           type == ov::element::i8;
}

// A zero point that is not an integer keeps the weight out of the int8 kernels; the others want
// it packed in one way for few rows and in another for many.
bool has_float_zero_point(const ov::Node& constant) {
    for (const auto& target : constant.output(0).get_target_inputs()) {
        const ov::Node* convert = target.get_node();
        if (!is_kind(*convert, {"Convert"})) {
            continue;
        }
        for (const auto& next : convert->output(0).get_target_inputs()) {
            if (is_kind(*next.get_node(), {"Subtract"}) && next.get_index() == 0) {
                const ov::Node* zero_point = next.get_node()->get_input_node_ptr(1);
                while (is_kind(*zero_point, {"Convert", "Reshape"})) {
                    zero_point = zero_point->get_input_node_ptr(0);
                }
                return !is_low_bit(zero_point->get_output_element_type(0));
            }
        }
    }
    return false;
}

// How many times its size in the file a constant takes once compiled, measured on the CPU: kernels
// keep weights in an order of their own; half precision is widened to f32 first and both stay.
// A table that is only looked up stays in the file, mapped, and takes nothing.
std::uint64_t copies_in_memory(const ov::op::v0::Constant& constant) {
    const std::vector<OpPort> uses = uses_of(constant);
    const bool looked_up = !uses.empty() && std::all_of(uses.begin(), uses.end(), [](OpPort use) {
        return is_kind(*use.get_node(), {"Gather"}) && use.get_index() == 0;
    });
    if (looked_up && is_low_bit(constant.get_element_type())) {
        return 0;
    }
    if (constant.get_element_type() == ov::element::f16 ||
        constant.get_element_type() == ov::element::bf16) {
        return 4;
    }
    return is_low_bit(constant.get_element_type()) && has_float_zero_point(constant) ? 2 : 1;
}

std::uint64_t weights_bytes(const ov::Model& part) {
    std::uint64_t bytes = 0;
    std::set<const void*> seen;
    for (const auto& op : part.get_ops()) {
        const auto* constant = dynamic_cast<const ov::op::v0::Constant*>(op.get());
        if (constant != nullptr && seen.insert(constant->get_data_ptr()).second) {
            bytes += constant->get_byte_size() * copies_in_memory(*constant);
        }
    }
    return bytes;
}

std::uint64_t row_bytes(const ov::Output<const ov::Node>& output) {
    std::uint64_t bytes = output.get_element_type().size();
    for (const ov::Dimension& dimension : output.get_partial_shape()) {
        bytes *= dimension.is_static() ? static_cast<std::uint64_t>(dimension.get_length()) : 1;
    }
    return bytes;
}

// Layers reuse each other's working memory: one layer's worth of everything computed. Logits are
// counted twice, by the device and on their way to the sampler, and for every row.
std::uint64_t activation_bytes(const ov::Model& part, const StageSpec& spec) {
    const std::uint64_t logits_bytes = spec.range.with_head ? row_bytes(part.output("logits")) : 0;
    std::uint64_t layer_bytes = 0;
    for (const auto& op : part.get_ops()) {
        if (is_kind(*op, {"Constant", "Parameter", "Result"})) {
            continue;
        }
        for (const auto& output : std::as_const(*op).outputs()) {
            const ov::PartialShape& shape = output.get_partial_shape();
            if (shape.rank().is_static() && shape.is_dynamic() &&
                row_bytes(output) != logits_bytes) {
                layer_bytes += row_bytes(output);
            }
        }
    }
    const std::uint64_t layers = std::max(1U, spec.range.layers.size());
    return spec.max_rows * (layer_bytes / layers + 2 * logits_bytes);
}

}  // namespace

std::vector<std::uint64_t> layer_kv_bytes_per_block(const ov::Model& part,
                                                    const NumericSettings& numeric) {
    // u8 keeps a scale and a zero point, f32 each, with the features of every token and head.
    const std::uint64_t element_bytes =
        numeric.kv_cache_precision == "f32" ? 4 : (numeric.kv_cache_precision == "f16" ? 2 : 1);
    const std::uint64_t extra_bytes = numeric.kv_cache_precision == "u8" ? 2 * sizeof(float) : 0;
    std::vector<std::uint64_t> layers;
    for (const auto& op : part.get_ordered_ops()) {
        if (!is_kind(*op, {"PagedAttentionExtension"})) {
            continue;
        }
        std::uint64_t bytes = 0;
        auto& notes = op->get_rt_info();
        for (const auto& [heads, size] :
             {std::pair{"num_k_heads", "k_head_size"}, std::pair{"num_v_heads", "v_head_size"}}) {
            if (notes.count(heads) == 0 || notes.count(size) == 0) {
                throw Error(ErrorCode::kUnsupported,
                            fmt::format("the size of the KV cache of '{}' is not known",
                                        op->get_friendly_name()));
            }
            bytes += notes.at(heads).as<std::uint64_t>() * kBlockTokens *
                     (notes.at(size).as<std::uint64_t>() * element_bytes + extra_bytes);
        }
        layers.push_back(bytes);
    }
    return layers;
}

StageFootprint part_footprint(const ov::Model& part, const StageSpec& spec) {
    const std::vector<std::uint64_t> kv_bytes = layer_kv_bytes_per_block(part, spec.numeric);
    return {
        .weights_bytes = weights_bytes(part),
        .kv_bytes_per_block = std::accumulate(kv_bytes.begin(), kv_bytes.end(), std::uint64_t{0}),
        .activation_bytes = activation_bytes(part, spec),
        .reserve_bytes = kRuntimeBytes};
}

StageFootprint stage_footprint(const std::filesystem::path& model_directory,
                               const StageSpec& spec) {
    const ModelSource source = ModelSource::open(model_directory);
    std::shared_ptr<ov::Model> part = cut_part(source.read_graph(), spec.range);
    make_paged(part, spec.range);
    return part_footprint(*part, spec);
}

std::uint32_t blocks_that_fit(const StageFootprint& footprint, std::uint64_t memory_bytes) {
    constexpr std::uint64_t kMinBlocks = 2;  // the spare one and one to work with
    constexpr std::uint64_t kMaxBlocks = std::uint64_t{1} << 24;
    const std::uint64_t fixed =
        footprint.weights_bytes + footprint.activation_bytes + footprint.reserve_bytes;
    const std::uint64_t left = memory_bytes > fixed ? memory_bytes - fixed : 0;
    const std::uint64_t blocks = footprint.kv_bytes_per_block == 0
                                     ? (memory_bytes >= fixed ? kMaxBlocks : 0)
                                     : left / footprint.kv_bytes_per_block;
    if (blocks < kMinBlocks) {
        throw Error(
            ErrorCode::kResourceExhausted,
            fmt::format("{} MiB of memory do not hold {} MiB of weights, {} MiB of working memory, "
                        "{} MiB of runtime and two KV blocks of {} KiB; give more memory, or fewer "
                        "layers to this stage",
                        memory_bytes / kMiB, footprint.weights_bytes / kMiB,
                        footprint.activation_bytes / kMiB, footprint.reserve_bytes / kMiB,
                        footprint.kv_bytes_per_block / 1024));
    }
    return static_cast<std::uint32_t>(std::min(blocks, kMaxBlocks));
}

}  // namespace shardline
