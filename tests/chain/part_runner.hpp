#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <openvino/openvino.hpp>
#include <string>
#include <vector>

#include "step/stage_spec.hpp"

namespace shardline::chain_test {

// Feeds compiled parts by hand, without executor, engine or transport: the shortest way from a cut
// graph to its logits.

using Logits = std::vector<float>;  // rows of the vocabulary, one after the other
using Ranges = std::vector<PartRange>;
using GraphSource = std::function<std::shared_ptr<ov::Model>()>;  // a graph of its own per call

struct TokenSpan {
    std::vector<std::int64_t> tokens;
    std::uint32_t past_len = 0;
    std::vector<std::int32_t> blocks;
};

// embed+layers [0, cuts[0]), layers, ..., layers+head; without cuts the whole model.
Ranges split_at(const std::vector<std::uint32_t>& cuts, std::uint32_t num_layers);

// embed | layers ... | head, each end on its own.
Ranges split_with_bare_ends(const std::vector<std::uint32_t>& cuts, std::uint32_t num_layers);

std::string to_text(const Ranges& ranges);

// The three rules of bit-reproducibility ask for this; `kv_precision` u8 is kept by token. One
// thread, as the graphs are tiny.
ov::AnyMap reproducible_config(const std::string& kv_precision = "u8");

// Everything in f32: two ways of computing differ by rounding alone.
ov::AnyMap exact_config();

GraphSource graph_of(const std::filesystem::path& directory);

ov::Core& test_core();

// The parts of one model, each compiled once however many splits it occurs in.
class PartSet final {
public:
    enum class Kind { kPaged, kStateful };

    PartSet(GraphSource source, Kind kind, ov::AnyMap config = reproducible_config())
        : source_(std::move(source)), kind_(kind), config_(std::move(config)) {}

    // Paged: the logits of the kept rows of one step.
    Logits run(const Ranges& ranges, const std::vector<TokenSpan>& spans,
               const std::vector<std::int32_t>& kept_rows);

    // Stateful: the logits of all rows (or what the graph gives); past_len 0 begins anew.
    Logits run(const Ranges& ranges, const std::vector<std::int64_t>& tokens,
               std::uint32_t past_len);

    // Names of the inputs of the part, compiled.
    std::vector<std::string> input_names(const PartRange& range);

private:
    struct Part {
        ov::CompiledModel compiled;
        ov::InferRequest infer;
    };
    using Feed = std::map<std::string, ov::Tensor>;

    Part& part(const PartRange& range);
    Logits run_chain(const Ranges& ranges, Feed feed);

    GraphSource source_;
    Kind kind_;
    ov::AnyMap config_;
    std::map<std::string, Part> parts_;
};

// A prompt, then tokens that the model itself chose, one step each.
struct Generation {
    std::vector<std::int64_t> prompt;
    std::vector<std::int64_t> generated;
    std::vector<Logits> logits;  // of the prompt's rows, then of one row per generated token
};

Generation generate_paged(PartSet& parts, const Ranges& ranges,
                          const std::vector<std::int64_t>& prompt, std::size_t num_generated);
Generation generate_stateful(PartSet& parts, const Ranges& ranges,
                             const std::vector<std::int64_t>& prompt, std::size_t num_generated);

// The same tokens through another split; the largest difference of all logits.
double replay_paged(PartSet& parts, const Ranges& ranges, const Generation& generation);
double replay_stateful(PartSet& parts, const Ranges& ranges, const Generation& generation);

// Tokens below `vocabulary`, the same at every call with the same seed.
std::vector<std::int64_t> random_tokens(std::size_t count, std::int64_t vocabulary,
                                        std::uint32_t seed = 1);

// 0.0 exactly when every value is the same; infinity when the sizes differ, there are none or one
// is not finite.
double max_difference(const Logits& a, const Logits& b);

double largest_logit(const Logits& logits);

// Directories of the unpacked fixture archive, by name; empty when it is not there.
std::vector<std::filesystem::path> tiny_models();

// The directory that an environment variable names, if it holds a model.
std::filesystem::path model_from_environment(const char* variable);

}  // namespace shardline::chain_test
