#include "chain/part_runner.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
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
        const std::string& name = port.get_node()->get_friendly_name();
        if (name.find("_cache.") == std::string::npos) {
            infer.set_tensor(port, feed.at(name));
        }
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

Feed stateful_feed(const std::vector<std::int64_t>& tokens, std::uint32_t past_len) {
    const std::size_t total = past_len + tokens.size();
    std::vector<std::int64_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), std::int64_t{past_len});
    Feed feed;
    feed.emplace("input_ids", tensor_of(tokens, {1, tokens.size()}));
    feed.emplace("position_ids", tensor_of(positions, {1, tokens.size()}));
    feed.emplace("attention_mask", tensor_of(std::vector<std::int64_t>(total, 1), {1, total}));
    feed.emplace("beam_idx", tensor_of(std::vector<std::int32_t>{0}, {1}));
    return feed;
}

}  // namespace

Ranges split_at(const std::vector<std::uint32_t>& cuts, std::uint32_t num_layers) {
    Ranges ranges;
    std::uint32_t first = 0;
    for (const std::uint32_t cut : cuts) {
        ranges.push_back({{first, cut}, ranges.empty(), false});
        first = cut;
    }
    ranges.push_back({{first, num_layers}, ranges.empty(), true});
    return ranges;
}

Ranges split_with_bare_ends(const std::vector<std::uint32_t>& cuts, std::uint32_t num_layers) {
    Ranges ranges = {{{0, 0}, true, false}};
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
                         {"INFERENCE_NUM_THREADS", 1},
                         {"KV_CACHE_PRECISION", kv_precision},
                         {"ENABLE_CPU_PINNING", false}};
    if (kv_precision == "u8") {
        config.emplace("KEY_CACHE_QUANT_MODE", "BY_TOKEN");
    }
    return config;
}

ov::AnyMap exact_config() {
    ov::AnyMap config = reproducible_config("f32");
    config.emplace("DYNAMIC_QUANTIZATION_GROUP_SIZE", 0);
    return config;
}

GraphSource graph_of(const std::filesystem::path& directory) {
    return [file = (directory / "openvino_model.xml").string()] {
        return test_core().read_model(file);
    };
}

ov::Core& test_core() {
    static ov::Core core;  // shared by the tests of one binary: starting a plugin is slow
    return core;
}

std::string to_text(const Ranges& ranges) {
    std::string text;
    for (const PartRange& range : ranges) {
        text += (text.empty() ? "" : " | ") + to_string(range);
    }
    return text;
}

PartSet::Part& PartSet::part(const PartRange& range) {
    const auto known = parts_.find(to_string(range));
    if (known != parts_.end()) {
        return known->second;
    }
    const auto graph = cut_part(source_(), range);
    if (kind_ == Kind::kPaged) {
        make_paged(graph, range);
    }
    Part part;
    part.compiled = test_core().compile_model(graph, "CPU", config_);
    part.infer = part.compiled.create_infer_request();
    bind_caches(part.compiled, part.infer);
    return parts_.emplace(to_string(range), std::move(part)).first->second;
}

Logits PartSet::run_chain(const Ranges& ranges, Feed feed) {
    for (const PartRange& range : ranges) {
        Part& running = part(range);
        run_part(running.compiled, running.infer, feed);
    }
    return take_logits(feed);
}

Logits PartSet::run(const Ranges& ranges, const std::vector<TokenSpan>& spans,
                    const std::vector<std::int32_t>& kept_rows) {
    return run_chain(ranges, paged_feed(spans, kept_rows));
}

Logits PartSet::run(const Ranges& ranges, const std::vector<std::int64_t>& tokens,
                    std::uint32_t past_len) {
    if (past_len == 0) {
        for (const PartRange& range : ranges) {
            part(range).infer.reset_state();
        }
    }
    return run_chain(ranges, stateful_feed(tokens, past_len));
}

std::vector<std::string> PartSet::input_names(const PartRange& range) {
    std::vector<std::string> names;
    for (const auto& port : part(range).compiled.inputs()) {
        names.push_back(port.get_node()->get_friendly_name());
    }
    return names;
}

namespace {

const std::vector<std::int32_t> kBlocks = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

Logits prefill(PartSet& parts, const Ranges& ranges, const std::vector<std::int64_t>& prompt) {
    std::vector<std::int32_t> all(prompt.size());
    std::iota(all.begin(), all.end(), 0);
    return parts.run(ranges, {{prompt, 0, kBlocks}}, all);
}

// A lone generated token gets a companion on a spare block, as rule 2 of bit-reproducibility asks.
Logits decode(PartSet& parts, const Ranges& ranges, std::int64_t token, std::size_t past_len) {
    Logits logits = parts.run(
        ranges, {{{token}, static_cast<std::uint32_t>(past_len), kBlocks}, {{7}, 0, {20}}}, {0, 1});
    logits.resize(logits.size() / 2);
    return logits;
}

std::int64_t argmax_of_last_row(const Logits& logits, std::size_t num_rows) {
    const auto width = static_cast<std::ptrdiff_t>(logits.size() / num_rows);
    return std::max_element(logits.end() - width, logits.end()) - (logits.end() - width);
}

}  // namespace

Generation generate_paged(PartSet& parts, const Ranges& ranges,
                          const std::vector<std::int64_t>& prompt, std::size_t num_generated) {
    Generation generation = {prompt, {}, {prefill(parts, ranges, prompt)}};
    std::int64_t token = argmax_of_last_row(generation.logits.back(), prompt.size());
    for (std::size_t i = 0; i < num_generated; ++i) {
        generation.generated.push_back(token);
        generation.logits.push_back(decode(parts, ranges, token, prompt.size() + i));
        token = argmax_of_last_row(generation.logits.back(), 1);
    }
    return generation;
}

Generation generate_stateful(PartSet& parts, const Ranges& ranges,
                             const std::vector<std::int64_t>& prompt, std::size_t num_generated) {
    Generation generation = {prompt, {}, {parts.run(ranges, prompt, 0)}};
    const std::size_t width = parts.run(ranges, {prompt.front()}, 0).size();
    generation.logits.front() = parts.run(ranges, prompt, 0);
    const std::size_t num_rows = generation.logits.front().size() / width;
    std::int64_t token = argmax_of_last_row(generation.logits.back(), num_rows);
    for (std::size_t i = 0; i < num_generated; ++i) {
        generation.generated.push_back(token);
        generation.logits.push_back(
            parts.run(ranges, {token}, static_cast<std::uint32_t>(prompt.size() + i)));
        token = argmax_of_last_row(generation.logits.back(), 1);
    }
    return generation;
}

double replay_paged(PartSet& parts, const Ranges& ranges, const Generation& generation) {
    double worst = max_difference(prefill(parts, ranges, generation.prompt), generation.logits[0]);
    for (std::size_t i = 0; i < generation.generated.size(); ++i) {
        const Logits logits =
            decode(parts, ranges, generation.generated[i], generation.prompt.size() + i);
        worst = std::max(worst, max_difference(logits, generation.logits[i + 1]));
    }
    return worst;
}

double replay_stateful(PartSet& parts, const Ranges& ranges, const Generation& generation) {
    double worst = max_difference(parts.run(ranges, generation.prompt, 0), generation.logits[0]);
    for (std::size_t i = 0; i < generation.generated.size(); ++i) {
        const auto past = static_cast<std::uint32_t>(generation.prompt.size() + i);
        const Logits logits = parts.run(ranges, {generation.generated[i]}, past);
        worst = std::max(worst, max_difference(logits, generation.logits[i + 1]));
    }
    return worst;
}

std::vector<std::int64_t> random_tokens(std::size_t count, std::int64_t vocabulary,
                                        std::uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<std::int64_t> token(1, vocabulary - 1);
    std::vector<std::int64_t> tokens(count);
    std::generate(tokens.begin(), tokens.end(), [&] { return token(random); });
    return tokens;
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

double largest_logit(const Logits& logits) {
    double largest = 0.0;
    for (const float logit : logits) {
        largest = std::max(largest, std::abs(double{logit}));
    }
    return largest;
}

std::vector<std::filesystem::path> tiny_models() {
    std::vector<std::filesystem::path> models;
    const char* directory = std::getenv("SHARDLINE_TINY_MODELS");
    if (directory != nullptr && std::filesystem::is_directory(directory)) {
        for (const auto& entry : std::filesystem::directory_iterator(directory)) {
            if (std::filesystem::exists(entry.path() / "openvino_model.xml")) {
                models.push_back(entry.path());
            }
        }
    }
    std::sort(models.begin(), models.end());
    return models;
}

std::filesystem::path model_from_environment(const char* variable) {
    const char* directory = std::getenv(variable);
    const bool there =
        directory != nullptr &&
        std::filesystem::exists(std::filesystem::path(directory) / "openvino_model.xml");
    return there ? std::filesystem::path(directory) : std::filesystem::path();
}

}  // namespace shardline::chain_test
