#include "chain/synthetic_decoder.hpp"

#include <openvino/opsets/opset13.hpp>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace shardline::chain_test {

namespace {

namespace op = ov::opset13;
using Value = ov::Output<ov::Node>;

constexpr std::int64_t kHeads = 2;

struct Cache {
    Value past;
    Value grown;
};

std::shared_ptr<op::Constant> ints(const std::vector<std::int64_t>& values) {
    return op::Constant::create(ov::element::i64, {values.size()}, values);
}

std::shared_ptr<op::Constant> scalar(std::int64_t value) {
    return op::Constant::create(ov::element::i64, {}, {value});
}

class DecoderBuilder final {
public:
    explicit DecoderBuilder(const DecoderOptions& options)
        : options_(options), head_size_(options.hidden / kHeads) {}

    std::shared_ptr<ov::Model> build();

private:
    Value weights(const ov::Shape& shape);
    Value project(const Value& x, std::int64_t from, std::int64_t to);
    Value heads_of(const Value& x);
    Cache remember(const std::string& name, const Value& now);
    Value mask_for(const Value& x, const Cache& keys);
    Value attend(const Value& q, const Value& k, const Value& v);
    Value attention(const Value& x, std::uint32_t layer);
    Value running_sum(const Value& x);
    Value layer_inputs(const Value& x, std::uint32_t layer);
    std::shared_ptr<op::Parameter> input(const char* name, ov::element::Type type,
                                         const ov::PartialShape& shape);

    const DecoderOptions options_;
    const std::int64_t head_size_;
    std::mt19937 random_{7};
    ov::ParameterVector inputs_;
    ov::SinkVector sinks_;
    Value beam_;
    Value ids_;
    Value batch_;
    Value mask_;
    Value extra_;
    Value keys_;
    Value values_;
};

std::shared_ptr<op::Parameter> DecoderBuilder::input(const char* name, ov::element::Type type,
                                                     const ov::PartialShape& shape) {
    auto parameter = std::make_shared<op::Parameter>(type, shape);
    parameter->set_friendly_name(name);
    parameter->get_output_tensor(0).set_names({name});
    inputs_.push_back(parameter);
    return parameter;
}

Value DecoderBuilder::weights(const ov::Shape& shape) {
    std::normal_distribution<float> normal(0.0F, 0.3F);
    std::vector<float> values(ov::shape_size(shape));
    for (float& value : values) {
        value = normal(random_);
    }
    return op::Constant::create(ov::element::f32, shape, values);
}

Value DecoderBuilder::project(const Value& x, std::int64_t from, std::int64_t to) {
    const Value w = weights({static_cast<std::size_t>(to), static_cast<std::size_t>(from)});
    return std::make_shared<op::MatMul>(x, w, false, true);
}

Value DecoderBuilder::heads_of(const Value& x) {
    const auto split = std::make_shared<op::Reshape>(x, ints({0, 0, kHeads, head_size_}), true);
    return std::make_shared<op::Transpose>(split, ints({0, 2, 1, 3}));
}

Cache DecoderBuilder::remember(const std::string& name, const Value& now) {
    const auto start_shape = std::make_shared<op::Concat>(
        ov::OutputVector{batch_, ints({kHeads}), ints({0}), ints({head_size_})}, 0);
    const auto start = std::make_shared<op::Broadcast>(
        op::Constant::create(ov::element::f32, {}, {0.0F}), start_shape);
    const auto variable = std::make_shared<ov::op::util::Variable>(ov::op::util::VariableInfo{
        ov::PartialShape{-1, kHeads, -1, head_size_}, ov::element::f32, name});
    const auto read = std::make_shared<op::ReadValue>(start, variable);
    const auto past = std::make_shared<op::Gather>(read, beam_, scalar(0));
    const auto grown = std::make_shared<op::Concat>(ov::OutputVector{past, now}, 2);
    sinks_.push_back(std::make_shared<op::Assign>(grown, variable));
    return {past, grown};
}

// Built from shapes of the first layer alone, as exports do.
Value DecoderBuilder::mask_for(const Value& x, const Cache& keys) {
    const auto extent = [](const Value& of, std::int64_t axis) {
        return std::make_shared<op::Gather>(std::make_shared<op::ShapeOf>(of), scalar(axis),
                                            scalar(0));
    };
    const auto past = extent(keys.past, 2);
    const auto total = std::make_shared<op::Add>(past, extent(x, 1));
    const auto key = std::make_shared<op::Range>(scalar(0), total, scalar(1), ov::element::i64);
    const auto query = std::make_shared<op::Unsqueeze>(
        std::make_shared<op::Range>(past, total, scalar(1), ov::element::i64), ints({1}));
    const auto distance = std::make_shared<op::Subtract>(query, key);
    Value open = std::make_shared<op::GreaterEqual>(distance, scalar(0));
    if (options_.window > 0) {
        open = std::make_shared<op::LogicalAnd>(
            open, std::make_shared<op::Less>(distance, scalar(options_.window)));
    }
    const auto bias =
        std::make_shared<op::Select>(open, op::Constant::create(ov::element::f32, {}, {0.0F}),
                                     op::Constant::create(ov::element::f32, {}, {-65504.0F}));
    return std::make_shared<op::Unsqueeze>(bias, ints({0, 1}));
}

Value DecoderBuilder::attend(const Value& q, const Value& k, const Value& v) {
    if (!options_.decomposed_attention) {
        return std::make_shared<op::ScaledDotProductAttention>(q, k, v, mask_, false);
    }
    const auto scores = std::make_shared<op::MatMul>(q, k, false, true);
    const auto masked = std::make_shared<op::Add>(scores, mask_);
    const auto softmax = std::make_shared<op::Softmax>(masked, 3);
    softmax->set_friendly_name("written_out_softmax");
    return std::make_shared<op::MatMul>(softmax, v);
}

Value DecoderBuilder::attention(const Value& x, std::uint32_t layer) {
    const std::int64_t h = options_.hidden;
    const Value q = heads_of(project(x, h, h));
    if (!(options_.shared_keys && layer + 1 == options_.num_layers)) {
        const Cache keys = remember(fmt::format("past.{}.key", layer), heads_of(project(x, h, h)));
        const Cache values =
            remember(fmt::format("past.{}.value", layer), heads_of(project(x, h, h)));
        if (layer == 0) {
            mask_ = mask_for(x, keys);
        }
        keys_ = keys.grown;
        values_ = values.grown;
    }
    const Value attended = attend(q, keys_, values_);
    attended.get_node()->set_friendly_name(fmt::format("attention.{}", layer));
    const auto rows = std::make_shared<op::Transpose>(attended, ints({0, 2, 1, 3}));
    return project(std::make_shared<op::Reshape>(rows, ints({0, 0, h}), true), h, h);
}

Value DecoderBuilder::running_sum(const Value& x) {
    const auto start = std::make_shared<op::Broadcast>(
        op::Constant::create(ov::element::f32, {}, {0.0F}),
        std::make_shared<op::Concat>(ov::OutputVector{batch_, ints({1}), ints({options_.hidden})},
                                     0));
    const auto variable = std::make_shared<ov::op::util::Variable>(ov::op::util::VariableInfo{
        ov::PartialShape{-1, 1, options_.hidden}, ov::element::f32, "past.1.sum"});
    const auto read = std::make_shared<op::ReadValue>(start, variable);
    const auto sum =
        std::make_shared<op::Add>(read, std::make_shared<op::ReduceSum>(x, ints({1}), true));
    sinks_.push_back(std::make_shared<op::Assign>(sum, variable));
    return std::make_shared<op::Add>(x, sum);
}

Value DecoderBuilder::layer_inputs(const Value& x, std::uint32_t layer) {
    constexpr std::int64_t kWidth = 8;
    if (layer == 0) {
        const Value table = weights({static_cast<std::size_t>(options_.vocabulary),
                                     static_cast<std::size_t>(kWidth * options_.num_layers)});
        extra_ = std::make_shared<op::Gather>(table, ids_, scalar(0));
    }
    const auto slice = std::make_shared<op::Slice>(
        extra_, ints({kWidth * layer}), ints({kWidth * (layer + 1)}), ints({1}), ints({2}));
    return std::make_shared<op::Add>(project(slice, kWidth, options_.hidden), x);
}

std::shared_ptr<ov::Model> DecoderBuilder::build() {
    ids_ = input("input_ids", ov::element::i64, {-1, -1});
    input("attention_mask", ov::element::i64, {-1, -1});
    beam_ = input("beam_idx", ov::element::i32, {-1});
    batch_ =
        std::make_shared<op::Gather>(std::make_shared<op::ShapeOf>(ids_), ints({0}), scalar(0));
    const Value table = weights(
        {static_cast<std::size_t>(options_.vocabulary), static_cast<std::size_t>(options_.hidden)});
    Value x = std::make_shared<op::Gather>(table, ids_, scalar(0));
    for (std::uint32_t layer = 0; layer < options_.num_layers; ++layer) {
        if (options_.per_layer_inputs) {
            x = layer_inputs(x, layer);
        }
        x = std::make_shared<op::Add>(x, attention(x, layer));
        if (options_.running_sum && layer == 1) {
            x = running_sum(x);
        }
        const auto inner =
            std::make_shared<op::Relu>(project(x, options_.hidden, 2 * options_.hidden));
        x = std::make_shared<op::Tanh>(
            std::make_shared<op::Add>(x, project(inner, 2 * options_.hidden, options_.hidden)));
    }
    const auto result =
        std::make_shared<op::Result>(project(x, options_.hidden, options_.vocabulary));
    result->get_output_tensor(0).set_names({"logits"});
    return std::make_shared<ov::Model>(ov::ResultVector{result}, sinks_, inputs_, "decoder");
}

}  // namespace

std::shared_ptr<ov::Model> make_decoder(const DecoderOptions& options) {
    return DecoderBuilder(options).build();
}

}  // namespace shardline::chain_test
