#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "step/stage_executor.hpp"

namespace shardline::stage_test {

// A span by its tokens; the plan's spans and the token ids are made of these.
struct TokenSpan {
    std::vector<std::int64_t> tokens;
    std::uint32_t past_len = 0;
    std::vector<BlockId> table;  // may be longer than the span needs
};

// Rows of logits, in the order of the kept rows.
using LogitRows = std::vector<std::vector<float>>;

struct ChainOptions {
    NumericSettings numeric;
    std::uint32_t num_threads = 0;
    std::uint32_t num_blocks = 64;
    std::uint32_t max_rows = 512;
    std::uint32_t max_context = 1024;
};

// What one step of `spans` needs beside token ids.
StepPlan make_plan(const std::vector<TokenSpan>& spans, std::vector<std::uint32_t> kept_rows,
                   std::vector<BlockCopy> copies = {});
Activations make_token_ids(const std::vector<TokenSpan>& spans);

// A spec with the fingerprint of the model at `directory` and room for the tests' steps.
StageSpec make_spec(const std::filesystem::path& directory, const PartRange& range,
                    const ChainOptions& options = {});

// Blocks [first, first + count).
std::vector<BlockId> blocks_from(std::uint32_t first, std::uint32_t count);

std::vector<std::int64_t> random_tokens(std::size_t count, std::int64_t vocabulary,
                                        std::uint32_t seed);

// Executors of one process, one after the other, without workers or wire.
class StageChain final {
public:
    // The uncut graph with the runtime's own paged rewrite: no code of the cut is involved.
    static StageChain unsplit(const std::filesystem::path& directory, const ChainOptions& options);

    // Stages embed+[0, cuts[0]), [cuts[0], cuts[1]), ..., [cuts[n-1], num_layers)+head.
    static StageChain split(const std::filesystem::path& directory,
                            const std::vector<std::uint32_t>& cuts, const ChainOptions& options);

    // As a coordinator with workers: embed | [0, cuts[0]) | ... | [.., num_layers) | head, the
    // last layers keeping only the rows that count.
    static StageChain with_bare_ends(const std::filesystem::path& directory,
                                     const std::vector<std::uint32_t>& cuts,
                                     const ChainOptions& options);

    LogitRows run(const std::vector<TokenSpan>& spans, std::vector<std::uint32_t> kept_rows,
                  std::vector<BlockCopy> copies = {});

    // The KV of `tokens` at [past_len, ...) in chunks of at most `chunk` tokens; logits of the
    // last `num_kept` of them.
    LogitRows prefill(const std::vector<std::int64_t>& tokens, const std::vector<BlockId>& table,
                      const std::vector<std::size_t>& chunks, std::size_t num_kept);

    // One generated token, alone in its step.
    std::vector<float> decode(std::int64_t token, std::uint32_t past_len,
                              const std::vector<BlockId>& table);

    std::size_t num_stages() const { return stages_.size(); }

private:
    std::vector<std::unique_ptr<StageExecutor>> stages_;
};

std::int64_t argmax(const std::vector<float>& logits);

// The same bits: NaN equals NaN, 0.0 differs from -0.0.
bool same_bits(const LogitRows& one, const LogitRows& other);
bool same_bits(const std::vector<float>& one, const std::vector<float>& other);
double max_difference(const LogitRows& one, const LogitRows& other);

}  // namespace shardline::stage_test
