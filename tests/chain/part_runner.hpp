#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <openvino/openvino.hpp>
#include <string>
#include <vector>

#include "step/stage_spec.hpp"

namespace shardline::chain_test {

// Feeds compiled parts by hand, without executor, engine or transport: the shortest way from a cut
// graph to its logits.

using Logits = std::vector<float>;  // rows of the vocabulary, one after the other

struct TokenSpan {
    std::vector<std::int64_t> tokens;
    std::uint32_t past_len = 0;
    std::vector<std::int32_t> blocks;
};

// embed+layers [0, cuts[0]), layers, ..., layers+head; without cuts the whole model.
std::vector<PartRange> split_at(const std::vector<std::uint32_t>& cuts, std::uint32_t num_layers);

// embed | layers ... | head, each end on its own.
std::vector<PartRange> split_with_bare_ends(const std::vector<std::uint32_t>& cuts,
                                            std::uint32_t num_layers);

ov::AnyMap reproducible_config(const std::string& kv_precision = "u8");

std::shared_ptr<ov::Model> read_graph(const std::filesystem::path& directory);

class PagedChain final {
public:
    PagedChain(const std::filesystem::path& directory, const std::vector<PartRange>& ranges,
               const ov::AnyMap& config = reproducible_config());

    // Logits of the kept rows of one step.
    Logits run(const std::vector<TokenSpan>& spans, const std::vector<std::int32_t>& kept_rows);

private:
    std::vector<ov::CompiledModel> compiled_;
    std::vector<ov::InferRequest> infers_;
};

class StatefulChain final {
public:
    StatefulChain(const std::filesystem::path& directory, const std::vector<PartRange>& ranges,
                  const ov::AnyMap& config = reproducible_config());

    // Logits of all rows; the tokens follow those of the calls before.
    Logits run(const std::vector<std::int64_t>& tokens);

    void reset();

private:
    std::vector<ov::CompiledModel> compiled_;
    std::vector<ov::InferRequest> infers_;
    std::int64_t past_len_ = 0;
};

// Prompt tokens below `vocabulary`, the same at every call with the same seed.
std::vector<std::int64_t> random_tokens(std::size_t count, std::int64_t vocabulary,
                                        std::uint32_t seed = 1);

std::int64_t argmax_of_last_row(const Logits& logits, std::size_t vocabulary);

// 0.0 exactly when every bit that matters is the same; infinity when the sizes differ or a value
// is not finite.
double max_difference(const Logits& a, const Logits& b);

}  // namespace shardline::chain_test
