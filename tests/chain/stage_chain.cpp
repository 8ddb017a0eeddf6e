#include "chain/stage_chain.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <openvino/openvino.hpp>
#include <openvino/pass/manager.hpp>
#include <openvino/pass/sdpa_to_paged_attention.hpp>
#include <random>
#include <utility>

#include "model/model_source.hpp"
#include "stage/paged_executor.hpp"
#include "stage/stage_loader.hpp"

namespace shardline::stage_test {

namespace {

void no_progress(const char* /*phase*/, double /*fraction*/) {}

std::uint32_t num_layers(const std::filesystem::path& directory) {
    return ModelSource::open(directory).info().num_layers;
}

}  // namespace

StepPlan make_plan(const std::vector<TokenSpan>& spans, std::vector<std::uint32_t> kept_rows,
                   std::vector<BlockCopy> copies) {
    StepPlan plan;
    plan.copy_blocks = std::move(copies);
    plan.kept_rows = std::move(kept_rows);
    for (const TokenSpan& span : spans) {
        Span planned{.sequence = SequenceId{1},
                     .past_len = span.past_len,
                     .num_tokens = static_cast<std::uint32_t>(span.tokens.size()),
                     .block_table = span.table};
        const std::uint32_t context = planned.past_len + planned.num_tokens;
        planned.block_table.resize((context + kBlockTokens - 1) / kBlockTokens);
        plan.spans.push_back(std::move(planned));
    }
    return plan;
}

Activations make_token_ids(const std::vector<TokenSpan>& spans) {
    Tensor ids{.name = "input_ids", .type = ElementType::kI64, .shape = {}, .bytes = {}};
    for (const TokenSpan& span : spans) {
        ids.bytes.append(reinterpret_cast<const char*>(span.tokens.data()),
                         span.tokens.size() * sizeof(std::int64_t));
    }
    ids.shape = {static_cast<std::int64_t>(ids.bytes.size() / sizeof(std::int64_t))};
    Activations activations;
    activations.push_back(std::move(ids));
    return activations;
}

StageSpec make_spec(const std::filesystem::path& directory, const PartRange& range,
                    const ChainOptions& options) {
    StageSpec spec;
    spec.model_name = directory.filename().string();
    spec.fingerprint = ModelSource::open(directory).fingerprint();
    spec.range = range;
    spec.numeric = options.numeric;
    spec.num_threads = options.num_threads;
    spec.num_blocks = options.num_blocks;
    spec.max_rows = options.max_rows;
    spec.max_context = options.max_context;
    return spec;
}

std::vector<BlockId> blocks_from(std::uint32_t first, std::uint32_t count) {
    std::vector<BlockId> blocks;
    for (std::uint32_t i = 0; i < count; ++i) {
        blocks.push_back(BlockId{first + i});
    }
    return blocks;
}

std::vector<std::int64_t> random_tokens(std::size_t count, std::int64_t vocabulary,
                                        std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::int64_t> tokens(count);
    for (std::int64_t& token : tokens) {
        token = static_cast<std::int64_t>(random()) % vocabulary;
    }
    return tokens;
}

StageChain StageChain::unsplit(const std::filesystem::path& directory,
                               const ChainOptions& options) {
    const ModelSource source = ModelSource::open(directory);
    const auto graph = source.read_graph();
    ov::pass::Manager passes;
    passes.register_pass<ov::pass::SDPAToPagedAttention>();
    passes.run_passes(graph);
    const PartRange whole{{0, source.info().num_layers}, true, true};
    StageChain chain;
    chain.stages_.push_back(
        make_paged_executor(graph, make_spec(directory, whole, options), no_progress));
    return chain;
}

StageChain StageChain::split(const std::filesystem::path& directory,
                             const std::vector<std::uint32_t>& cuts, const ChainOptions& options) {
    std::vector<std::uint32_t> edges = {0};
    edges.insert(edges.end(), cuts.begin(), cuts.end());
    edges.push_back(num_layers(directory));
    StageChain chain;
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
        const PartRange range{{edges[i], edges[i + 1]}, i == 0, i + 2 == edges.size()};
        chain.stages_.push_back(
            load_stage(directory, make_spec(directory, range, options), no_progress));
    }
    return chain;
}

StageChain StageChain::with_bare_ends(const std::filesystem::path& directory,
                                      const std::vector<std::uint32_t>& cuts,
                                      const ChainOptions& options) {
    const std::uint32_t layers = num_layers(directory);
    std::vector<PartRange> ranges = {{{0, 0}, true, false}};
    std::uint32_t first = 0;
    for (std::uint32_t cut : cuts) {
        ranges.push_back({{first, cut}, false, false});
        first = cut;
    }
    ranges.push_back({{first, layers}, false, false});
    ranges.push_back({{layers, layers}, false, true});
    StageChain chain;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        StageSpec spec = make_spec(directory, ranges[i], options);
        spec.keeps_rows = i + 2 == ranges.size();
        chain.stages_.push_back(load_stage(directory, spec, no_progress));
    }
    return chain;
}

LogitRows StageChain::run(const std::vector<TokenSpan>& spans, std::vector<std::uint32_t> kept_rows,
                          std::vector<BlockCopy> copies) {
    const StepPlan plan = make_plan(spans, std::move(kept_rows), std::move(copies));
    Activations activations = make_token_ids(spans);
    for (const auto& stage : stages_) {
        activations = stage->run(plan, std::move(activations));
    }
    const Tensor& logits = activations.at(0);
    const auto rows = static_cast<std::size_t>(logits.shape.at(0));
    const auto width = static_cast<std::size_t>(logits.shape.at(1));
    LogitRows values(rows, std::vector<float>(width));
    for (std::size_t row = 0; row < rows; ++row) {
        std::memcpy(values[row].data(), logits.bytes.data() + row * width * sizeof(float),
                    width * sizeof(float));
    }
    return values;
}

LogitRows StageChain::prefill(const std::vector<std::int64_t>& tokens,
                              const std::vector<BlockId>& table,
                              const std::vector<std::size_t>& chunks, std::size_t num_kept) {
    LogitRows kept;
    std::size_t past = 0;
    for (std::size_t chunk : chunks) {
        const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(past);
        const TokenSpan span{.tokens = {begin, begin + static_cast<std::ptrdiff_t>(chunk)},
                             .past_len = static_cast<std::uint32_t>(past),
                             .table = table};
        std::vector<std::uint32_t> rows;
        for (std::size_t i = 0; i < chunk; ++i) {
            if (past + i + num_kept >= tokens.size()) {
                rows.push_back(static_cast<std::uint32_t>(i));
            }
        }
        for (auto& row : run({span}, rows)) {
            kept.push_back(std::move(row));
        }
        past += chunk;
    }
    return kept;
}

std::vector<float> StageChain::decode(std::int64_t token, std::uint32_t past_len,
                                      const std::vector<BlockId>& table) {
    return run({{.tokens = {token}, .past_len = past_len, .table = table}}, {0}).at(0);
}

std::int64_t argmax(const std::vector<float>& logits) {
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

bool same_bits(const std::vector<float>& one, const std::vector<float>& other) {
    return one.size() == other.size() &&
           std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

bool same_bits(const LogitRows& one, const LogitRows& other) {
    return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                      [](const auto& a, const auto& b) { return same_bits(a, b); });
}

double max_difference(const LogitRows& one, const LogitRows& other) {
    double difference = one.size() == other.size() ? 0.0 : std::numeric_limits<double>::infinity();
    for (std::size_t row = 0; row < std::min(one.size(), other.size()); ++row) {
        for (std::size_t i = 0; i < one[row].size(); ++i) {
            difference = std::max(difference, std::fabs(double{one[row][i]} - other[row][i]));
        }
    }
    return difference;
}

}  // namespace shardline::stage_test
