#include "cut/probe.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/log.hpp"
#include "cut/attention_window.hpp"
#include "cut/cut.hpp"
#include "cut/data_flow.hpp"
#include "model/openvino_error.hpp"

namespace shardline {

namespace {

constexpr std::size_t kPromptTokens = 90;
constexpr std::size_t kSingleTokens = 4;

using Tokens = std::vector<std::int64_t>;
using Logits = std::vector<float>;
using Feed = std::map<std::string, ov::Tensor>;

// The prompt, then the single tokens.
std::vector<Tokens> probe_steps(const ModelInfo& info) {
    std::mt19937 random(20260101);
    const std::int64_t vocabulary = std::max<std::int64_t>(info.vocab_size, 2);
    std::uniform_int_distribution<std::int64_t> token(0, vocabulary - 1);
    std::size_t prompt = kPromptTokens;
    if (info.context_length > kSingleTokens + 2) {
        prompt = std::min<std::size_t>(prompt, info.context_length - kSingleTokens);
    }
    std::vector<Tokens> steps(1 + kSingleTokens, Tokens(1));
    steps.front().resize(prompt);
    for (Tokens& step : steps) {
        std::generate(step.begin(), step.end(), [&] { return token(random); });
    }
    return steps;
}

template <typename Value>
ov::Tensor tensor_of(const std::vector<Value>& values, const ov::Shape& shape) {
    ov::Tensor tensor(ov::element::from<Value>(), shape);
    std::copy(values.begin(), values.end(), tensor.data<Value>());
    return tensor;
}

std::vector<std::int64_t> positions_of(std::size_t past, std::size_t count) {
    std::vector<std::int64_t> positions(count);
    std::iota(positions.begin(), positions.end(), static_cast<std::int64_t>(past));
    return positions;
}

Feed stateful_feed(const Tokens& tokens, std::size_t past) {
    const std::size_t total = past + tokens.size();
    return {{"input_ids", tensor_of(tokens, {1, tokens.size()})},
            {"position_ids", tensor_of(positions_of(past, tokens.size()), {1, tokens.size()})},
            {"attention_mask", tensor_of(std::vector<std::int64_t>(total, 1), {1, total})},
            {"beam_idx", tensor_of(std::vector<std::int32_t>{0}, {1})}};
}

Feed paged_feed(const Tokens& tokens, std::size_t past, std::size_t block_tokens) {
    const auto i32 = [](std::size_t value) { return static_cast<std::int32_t>(value); };
    const std::size_t total = past + tokens.size();
    std::vector<std::int32_t> blocks((total + block_tokens - 1) / block_tokens);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::vector<std::int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    return {{"input_ids", tensor_of(tokens, {tokens.size()})},
            {"position_ids", tensor_of(positions_of(past, tokens.size()), {tokens.size()})},
            {"past_lens", tensor_of(std::vector{i32(past)}, {1})},
            {"subsequence_begins", tensor_of(std::vector{0, i32(tokens.size())}, {2})},
            {"block_indices", tensor_of(blocks, {blocks.size()})},
            {"block_indices_begins", tensor_of(std::vector{0, i32(blocks.size())}, {2})},
            {"max_context_len", tensor_of(std::vector{i32(total)}, {})},
            {"kept_rows", tensor_of(rows, {rows.size()})}};
}

bool is_cache(const std::string& name) {
    return name.starts_with("key_cache.") || name.starts_with("value_cache.");
}

// A compiled graph that runs the probe's steps one after the other.
class ProbeRun final {
public:
    ProbeRun(ov::Core& core, const std::shared_ptr<ov::Model>& graph)
        : compiled_(core.compile_model(
              graph, "CPU", ov::hint::inference_precision(ov::element::f32),
              ov::hint::kv_cache_precision(ov::element::f32),
              ov::hint::dynamic_quantization_group_size(0), ov::hint::enable_cpu_pinning(false))),
          infer_(compiled_.create_infer_request()) {}

    // Gives the pool room for `num_tokens`; returns the tokens in a block of it.
    std::size_t bind_pool(std::size_t num_tokens) {
        std::size_t block_tokens = 0;
        for (const auto& port : compiled_.inputs()) {
            if (!is_cache(port.get_any_name())) {
                continue;
            }
            ov::PartialShape shape = port.get_partial_shape();
            block_tokens = static_cast<std::size_t>(shape[2].get_length());
            shape[0] = static_cast<std::int64_t>((num_tokens + block_tokens - 1) / block_tokens);
            infer_.set_tensor(port, ov::Tensor(port.get_element_type(), shape.to_shape()));
        }
        return block_tokens;
    }

    Logits run(const Feed& feed) {
        for (const auto& port : compiled_.inputs()) {
            const std::string name = port_name(*port.get_node());
            if (is_cache(name)) {
                continue;
            }
            const auto value = feed.find(name);
            if (value == feed.end()) {
                throw Error(ErrorCode::kUnsupported,
                            fmt::format("the graph has the input '{}', which a step of text does "
                                        "not have",
                                        name));
            }
            infer_.set_tensor(port, value->second);
        }
        infer_.infer();
        const ov::Tensor logits = infer_.get_output_tensor(0);
        return {logits.data<float>(), logits.data<float>() + logits.get_size()};
    }

private:
    ov::CompiledModel compiled_;
    ov::InferRequest infer_;
};

std::vector<Logits> run_stateful(ov::Core& core, const std::shared_ptr<ov::Model>& graph,
                                 const std::vector<Tokens>& steps) {
    ProbeRun probe(core, graph);
    std::vector<Logits> logits;
    std::size_t past = 0;
    for (const Tokens& step : steps) {
        logits.push_back(probe.run(stateful_feed(step, past)));
        past += step.size();
    }
    return logits;
}

std::vector<Logits> run_paged(ov::Core& core, const std::shared_ptr<ov::Model>& graph,
                              const std::vector<Tokens>& steps) {
    ProbeRun probe(core, graph);
    const std::size_t block_tokens = probe.bind_pool(kPromptTokens + kSingleTokens);
    std::vector<Logits> logits;
    std::size_t past = 0;
    for (const Tokens& step : steps) {
        logits.push_back(probe.run(paged_feed(step, past, block_tokens)));
        past += step.size();
    }
    return logits;
}

// A stateful graph may give the logits of the last row alone.
double difference(const Logits& stateful, const Logits& paged) {
    if (stateful.empty() || stateful.size() > paged.size()) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("the stateful graph gives {} logits, the paged one {}",
                                stateful.size(), paged.size()));
    }
    const float* last_rows = paged.data() + (paged.size() - stateful.size());
    double largest = 0.0;
    for (std::size_t i = 0; i < stateful.size(); ++i) {
        const double step = std::abs(double{stateful[i]} - double{last_rows[i]});
        largest =
            std::isnan(step) ? std::numeric_limits<double>::infinity() : std::max(largest, step);
    }
    return largest;
}

void check_windows(const std::vector<AttentionWindow>& stateful,
                   const std::vector<AttentionWindow>& paged) {
    if (stateful.size() != paged.size()) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("the paged rewrite made {} attentions of {}", paged.size(),
                                stateful.size()));
    }
    for (std::size_t i = 0; i < stateful.size(); ++i) {
        if (stateful[i].tokens == kUnknownWindow) {
            room_logger("cut")->warn(
                "the mask of '{}' could not be computed alone: how far it "
                "looks back is checked up to {} tokens only",
                stateful[i].attention, kPromptTokens);
        } else if (stateful[i].tokens != paged[i].tokens) {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("the paged rewrite loses the sliding window of '{}': {} "
                                    "tokens in the stateful graph, {} in the paged one (0: all)",
                                    stateful[i].attention, stateful[i].tokens, paged[i].tokens));
        }
    }
}

double compare(const ModelSource& source) {
    ov::Core core;
    const PartRange whole = {{0, source.info().num_layers}, true, true};
    const auto stateful = cut_part(source.read_graph(), whole);
    const auto paged = cut_part(source.read_graph(), whole);
    make_paged(paged, whole);
    check_windows(stateful_windows(core, stateful), paged_windows(paged));
    const std::vector<Tokens> steps = probe_steps(source.info());
    const std::vector<Logits> expected = run_stateful(core, stateful, steps);
    const std::vector<Logits> given = run_paged(core, paged, steps);
    double largest = 0.0;
    double scale = 0.0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        largest = std::max(largest, difference(expected[i], given[i]));
        for (const float logit : expected[i]) {
            scale = std::max(scale, std::abs(double{logit}));
        }
    }
    if (!(largest <= kMaxRewriteDifference * scale)) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("the paged rewrite gives other logits than the stateful graph of "
                                "{}: the largest difference is {:.3g}, {:.3g} is allowed; it "
                                "cannot be served",
                                source.info().name, largest, kMaxRewriteDifference * scale));
    }
    return largest;
}

}  // namespace

double check_paged_rewrite(const ModelSource& source) {
    try {
        return compare(source);
    } catch (const ov::Exception& fault) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("the paged rewrite of {} could not be checked: {}",
                                source.info().name, openvino_reason(fault.what())));
    }
}

}  // namespace shardline
