#include "chain/part_runner.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "cut/cut.hpp"

namespace shardline::chain_test {

namespace {

constexpr std::size_t kPoolBlocks = 32;
constexpr std::uint32_t kBlock = 32;

using Feed = std::map<std::string, ov::Tensor>;

template <typename Value>
ov::Tensor tensor_of(const std::vector<Value>& values, const ov::Shape& shape) {
    ov::Tensor tensor(ov::element::from<Value>(), shape);
    std::copy(values.begin(), values.end(), tensor.data<Value>());
    return tensor;
}

void bind_caches(const ov::CompiledModel& compiled, ov::InferRequest& infer) {
    for (const auto& port : compiled.inputs()) {
        if (port.get_any_name().find("_cache.") == std::string::npos) {
            continue;
        }
        ov::Shape shape = {kPoolBlocks};
        for (std::size_t i = 1; i < port.get_partial_shape().size(); ++i) {
            shape.push_back(static_cast<std::size_t>(port.get_partial_shape()[i].get_length()));
        }
        ov::Tensor pool(port.get_element_type(), shape);
        std::fill_n(static_cast<char*>(pool.data()), pool.get_byte_size(), char{0});
        infer.set_tensor(port, pool);
    }
}

// One part: feeds what it asks for, and puts what it computes into the feed for the next one.
void run_part(const ov::CompiledModel& compiled, ov::InferRequest& infer, Feed& feed) {
    for (const auto& port : compiled.inputs()) {
        const std::string& name = port.get_any_name();
        if (name.find("_cache.") != std::string::npos) {
            continue;
        }
        infer.set_tensor(port, feed.at(name));
    }
    infer.infer();
    for (const auto& port : compiled.outputs()) {
        const ov::Tensor output = infer.get_tensor(port);
        ov::Tensor copy(output.get_element_type(), output.get_shape());
        output.copy_to(copy);
        for (const std::string& name : port.get_names()) {
            feed.insert_or_assign(name, copy);
        }
    }
}

Logits take_logits(const Feed& feed) {
    const ov::Tensor& logits = feed.at("logits");
    return {logits.data<float>(), logits.data<float>() + logits.get_size()};
}

Feed paged_feed(const std::vector<TokenSpan>& spans, const std::vector<std::int32_t>& kept_rows) {
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> positions;
    std::vector<std::int32_t> past_lens;
    std::vector<std::int32_t> begins = {0};
    std::vector<std::int32_t> blocks;
    std::vector<std::int32_t> block_begins = {0};
    std::int32_t longest = 0;
    for (const TokenSpan& span : spans) {
        ids.insert(ids.end(), span.tokens.begin(), span.tokens.end());
        const auto context = static_cast<std::uint32_t>(span.past_len + span.tokens.size());
        for (std::uint32_t i = span.past_len; i < context; ++i) {
            positions.push_back(i);
        }
        past_lens.push_back(static_cast<std::int32_t>(span.past_len));
        begins.push_back(static_cast<std::int32_t>(ids.size()));
        const std::uint32_t num_blocks = (context + kBlock - 1) / kBlock;
        blocks.insert(blocks.end(), span.blocks.begin(), span.blocks.begin() + num_blocks);
        block_begins.push_back(static_cast<std::int32_t>(blocks.size()));
        longest = std::max(longest, static_cast<std::int32_t>(context));
    }
    Feed feed;
    feed.emplace("input_ids", tensor_of(ids, {ids.size()}));
    feed.emplace("position_ids", tensor_of(positions, {ids.size()}));
    feed.emplace("past_lens", tensor_of(past_lens, {past_lens.size()}));
    feed.emplace("subsequence_begins", tensor_of(begins, {begins.size()}));
    feed.emplace("block_indices", tensor_of(blocks, {blocks.size()}));
    feed.emplace("block_indices_begins", tensor_of(block_begins, {block_begins.size()}));
    feed.emplace("max_context_len", tensor_of(std::vector<std::int32_t>{longest}, {}));
    feed.emplace("kept_rows", tensor_of(kept_rows, {kept_rows.size()}));
    return feed;
}

ov::Core& core() {
    static ov::Core instance;  // shared by the tests of one binary: starting a plugin is slow
    return instance;
}

}  // namespace

std::vector<PartRange> split_at(const std::vector<std::uint32_t>& cuts, std::uint32_t num_layers) {
    std::vector<PartRange> ranges;
    std::uint32_t first = 0;
    for (const std::uint32_t cut : cuts) {
        ranges.push_back({{first, cut}, ranges.empty(), false});
        first = cut;
    }
    ranges.push_back({{first, num_layers}, ranges.empty(), true});
    return ranges;
}

std::vector<PartRange> split_with_bare_ends(const std::vector<std::uint32_t>& cuts,
                                            std::uint32_t num_layers) {
    std::vector<PartRange> ranges = {{{0, 0}, true, false}};
    std::uint32_t first = 0;
    for (const std::uint32_t cut : cuts) {
        ranges.push_back({{first, cut}, false, false});
        first = cut;
    }
    ranges.push_back({{first, num_layers}, false, false});
    ranges.push_back({{num_layers, num_layers}, false, true});
    return ranges;
}

ov::AnyMap reproducible_config(const std::string& kv_precision) {
    ov::AnyMap config = {{"INFERENCE_PRECISION_HINT", "f32"},
                         {"KV_CACHE_PRECISION", kv_precision},
                         {"ENABLE_CPU_PINNING", false}};
    if (kv_precision == "u8") {
        config.emplace("KEY_CACHE_QUANT_MODE", "BY_TOKEN");
    }
    return config;
}

std::shared_ptr<ov::Model> read_graph(const std::filesystem::path& directory) {
    return core().read_model((directory / "openvino_model.xml").string());
}

PagedChain::PagedChain(const std::filesystem::path& directory, const std::vector<PartRange>& ranges,
                       const ov::AnyMap& config) {
    for (const PartRange& range : ranges) {
        const auto part = cut_part(read_graph(directory), range);
        make_paged(part, range);
        compiled_.push_back(core().compile_model(part, "CPU", config));
        infers_.push_back(compiled_.back().create_infer_request());
        bind_caches(compiled_.back(), infers_.back());
    }
}

Logits PagedChain::run(const std::vector<TokenSpan>& spans,
                       const std::vector<std::int32_t>& kept_rows) {
    Feed feed = paged_feed(spans, kept_rows);
    for (std::size_t i = 0; i < infers_.size(); ++i) {
        run_part(compiled_[i], infers_[i], feed);
    }
    return take_logits(feed);
}

StatefulChain::StatefulChain(const std::filesystem::path& directory,
                             const std::vector<PartRange>& ranges, const ov::AnyMap& config) {
    for (const PartRange& range : ranges) {
        compiled_.push_back(
            core().compile_model(cut_part(read_graph(directory), range), "CPU", config));
        infers_.push_back(compiled_.back().create_infer_request());
    }
}

Logits StatefulChain::run(const std::vector<std::int64_t>& tokens) {
    const auto total = static_cast<std::size_t>(past_len_) + tokens.size();
    std::vector<std::int64_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), past_len_);
    Feed feed;
    feed.emplace("input_ids", tensor_of(tokens, {1, tokens.size()}));
    feed.emplace("position_ids", tensor_of(positions, {1, tokens.size()}));
    feed.emplace("attention_mask", tensor_of(std::vector<std::int64_t>(total, 1), {1, total}));
    feed.emplace("beam_idx", tensor_of(std::vector<std::int32_t>{0}, {1}));
    for (std::size_t i = 0; i < infers_.size(); ++i) {
        run_part(compiled_[i], infers_[i], feed);
    }
    past_len_ = static_cast<std::int64_t>(total);
    return take_logits(feed);
}

void StatefulChain::reset() {
    for (auto& infer : infers_) {
        infer.reset_state();
    }
    past_len_ = 0;
}

std::vector<std::int64_t> random_tokens(std::size_t count, std::int64_t vocabulary,
                                        std::uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<std::int64_t> token(1, vocabulary - 1);
    std::vector<std::int64_t> tokens(count);
    std::generate(tokens.begin(), tokens.end(), [&] { return token(random); });
    return tokens;
}

std::int64_t argmax_of_last_row(const Logits& logits, std::size_t vocabulary) {
    const auto begin = logits.end() - static_cast<std::ptrdiff_t>(vocabulary);
    return std::max_element(begin, logits.end()) - begin;
}

double max_difference(const Logits& a, const Logits& b) {
    if (a.size() != b.size() || a.empty()) {
        return std::numeric_limits<double>::infinity();
    }
    double worst = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
            return std::numeric_limits<double>::infinity();
        }
        worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}));
    }
    return worst;
}

}  // namespace shardline::chain_test
