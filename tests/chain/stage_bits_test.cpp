// The same model in any number of stages, and the same tokens in any company, give the same bits.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "chain/stage_chain.hpp"
#include "model/model_source.hpp"
#include "stage/numeric_choice.hpp"

namespace shardline::stage_test {
namespace {

constexpr std::uint32_t kPromptTokens = 200;
constexpr std::uint32_t kGeneratedTokens = 64;
constexpr std::uint32_t kTableBlocks = 10;  // 320 tokens

struct ModelCase {
    std::string name;                 // a tiny model, or a real one
    std::vector<std::uint32_t> cuts;  // of five stages with bare ends, or four without
    const char* variable = nullptr;   // that names the directory of a real one
};

void PrintTo(const ModelCase& model, std::ostream* out) {
    *out << model.name;
}

class StageBits : public testing::TestWithParam<ModelCase> {
protected:
    void SetUp() override {
        const bool tiny = GetParam().variable == nullptr;
        const char* variable = tiny ? "SHARDLINE_TINY_MODELS" : GetParam().variable;
        const char* value = std::getenv(variable);
        if (value == nullptr || !std::filesystem::exists(value)) {
            GTEST_SKIP() << variable << " names no directory";
        }
        directory_ =
            tiny ? std::filesystem::path(value) / GetParam().name : std::filesystem::path(value);
        vocabulary_ = ModelSource::open(directory_).info().vocab_size;
        prompt_ = random_tokens(kPromptTokens, vocabulary_, 1);
        options_.numeric = numeric_settings_for(directory_);
    }

    std::vector<std::int64_t> tokens(std::size_t count, std::uint32_t seed) const {
        return random_tokens(count, vocabulary_, seed);
    }

    std::filesystem::path directory_;
    std::int64_t vocabulary_ = 0;
    std::vector<std::int64_t> prompt_;
    ChainOptions options_;
};

TEST_P(StageBits, SplitEqualsUnsplit) {
    StageChain unsplit = StageChain::unsplit(directory_, options_);
    const std::vector<BlockId> table = blocks_from(1, kTableBlocks);
    const LogitRows expected_prompt = unsplit.prefill(prompt_, table, {200}, kPromptTokens);
    std::vector<std::int64_t> fed = {argmax(expected_prompt.back())};
    LogitRows expected;
    for (std::uint32_t i = 0; i < kGeneratedTokens; ++i) {
        expected.push_back(unsplit.decode(fed.back(), kPromptTokens + i, table));
        fed.push_back(argmax(expected.back()));
    }

    const std::vector<std::uint32_t>& cuts = GetParam().cuts;
    std::vector<StageChain> chains;
    chains.push_back(StageChain::split(directory_, {}, options_));
    chains.push_back(StageChain::split(directory_, {cuts.at(1)}, options_));
    chains.push_back(StageChain::split(directory_, {cuts.at(0), cuts.at(1)}, options_));
    chains.push_back(StageChain::with_bare_ends(directory_, cuts, options_));
    for (StageChain& chain : chains) {
        SCOPED_TRACE(std::to_string(chain.num_stages()) + " stages");
        const LogitRows got = chain.prefill(prompt_, table, {64, 64, 72}, kPromptTokens);
        EXPECT_EQ(0.0, max_difference(expected_prompt, got));
        ASSERT_TRUE(same_bits(expected_prompt, got));
        for (std::uint32_t i = 0; i < kGeneratedTokens; ++i) {
            const auto logits = chain.decode(fed[i], kPromptTokens + i, table);
            ASSERT_TRUE(same_bits(expected[i], logits)) << "generated token " << i;
        }
    }
}

TEST_P(StageBits, PromptInAnyChunks) {
    StageChain chain = StageChain::split(directory_, {GetParam().cuts.at(1)}, options_);
    const LogitRows whole = chain.prefill(prompt_, blocks_from(1, 10), {200}, kPromptTokens);
    const std::vector<std::vector<std::size_t>> chunkings = {
        {100, 100}, {64, 64, 72}, {33, 167}, {2, 198}, {198, 2}, {31, 34, 66, 69}};
    for (const std::vector<std::size_t>& chunks : chunkings) {
        const LogitRows got = chain.prefill(prompt_, blocks_from(20, 10), chunks, kPromptTokens);
        EXPECT_TRUE(same_bits(whole, got))
            << "first chunk of " << chunks.front() << ", difference " << max_difference(whole, got);
    }
}

TEST_P(StageBits, AloneEqualsInABatchOfEight) {
    StageChain chain = StageChain::split(directory_, {GetParam().cuts.at(1)}, options_);
    const std::vector<std::int64_t> answer = tokens(16, 2);
    const std::vector<BlockId> table = blocks_from(1, 8);
    chain.prefill(prompt_, table, {200}, 1);
    LogitRows alone;
    for (std::uint32_t i = 0; i < answer.size(); ++i) {
        alone.push_back(chain.decode(answer[i], kPromptTokens + i, table));
    }

    // Seven others of different lengths around it, one of them still in its prompt.
    chain.prefill(prompt_, table, {200}, 1);
    for (std::uint32_t other = 0; other < 6; ++other) {
        const std::uint32_t length = 20 + 9 * other;
        chain.prefill(tokens(length, 10 + other), blocks_from(9 + 4 * other, 4), {length}, 1);
    }
    const std::vector<std::int64_t> late_prompt = tokens(16 * 5, 30);
    for (std::uint32_t i = 0; i < answer.size(); ++i) {
        std::vector<TokenSpan> spans;
        for (std::uint32_t other = 0; other < 6; ++other) {
            spans.push_back({{3 + other + i}, 20 + 9 * other + i, blocks_from(9 + 4 * other, 4)});
        }
        const auto begin = late_prompt.begin() + 5 * static_cast<std::ptrdiff_t>(i);
        spans.insert(spans.begin() + 3, {{begin, begin + 5}, 5 * i, blocks_from(40, 4)});
        spans.insert(spans.begin() + 2, {{answer[i]}, kPromptTokens + i, table});
        EXPECT_TRUE(same_bits(alone[i], chain.run(spans, {2}).at(0))) << "token " << i;
    }
}

TEST_P(StageBits, VerificationAfterARejectedBlockEqualsOneByOne) {
    StageChain chain = StageChain::split(directory_, {GetParam().cuts.at(1)}, options_);
    const std::vector<std::int64_t> answer = tokens(8, 3);
    const std::vector<BlockId> table = blocks_from(1, 8);
    chain.prefill(prompt_, table, {200}, 1);
    LogitRows one_by_one;
    for (std::uint32_t i = 0; i < answer.size(); ++i) {
        one_by_one.push_back(chain.decode(answer[i], kPromptTokens + i, table));
    }
    const std::vector<BlockId> other = blocks_from(20, 8);
    const auto block = [&](const std::vector<std::int64_t>& draft) {
        std::vector<TokenSpan> spans;
        std::vector<std::uint32_t> rows;
        for (std::uint32_t i = 0; i < draft.size(); ++i) {
            spans.push_back({{draft[i]}, kPromptTokens + i, other});
            rows.push_back(i);
        }
        return chain.run(spans, rows);
    };
    chain.prefill(prompt_, other, {200}, 1);
    block(tokens(8, 4));  // a guess that is rejected: its keys stay behind and are overwritten
    EXPECT_TRUE(same_bits(one_by_one, block(answer)));
}

TEST_P(StageBits, CopiedBlocksAreAFork) {
    StageChain chain = StageChain::split(directory_, {GetParam().cuts.at(1)}, options_);
    const std::vector<BlockId> table = blocks_from(1, 8);
    chain.prefill(prompt_, table, {200}, 1);
    const auto straight = chain.decode(5, kPromptTokens, table);

    // 200 tokens are six full blocks, shared, and one in part, copied before either goes on.
    std::vector<BlockId> fork = table;
    fork[6] = BlockId{30};
    const auto forked = chain.run({{{7}, kPromptTokens, table}, {{5}, kPromptTokens, fork}}, {0, 1},
                                  {{.from = table[6], .to = fork[6]}});
    EXPECT_TRUE(same_bits(straight, forked.at(1)));
    EXPECT_FALSE(same_bits(straight, forked.at(0)));
}

TEST_P(StageBits, ThreadsChangeNothing) {
    ChainOptions one_thread = options_;
    one_thread.num_threads = 1;
    ChainOptions two_threads = options_;
    two_threads.num_threads = 2;
    StageChain one = StageChain::split(directory_, {GetParam().cuts.at(1)}, one_thread);
    StageChain two = StageChain::split(directory_, {GetParam().cuts.at(1)}, two_threads);
    const std::vector<BlockId> table = blocks_from(1, 8);
    EXPECT_TRUE(same_bits(one.prefill(prompt_, table, {200}, kPromptTokens),
                          two.prefill(prompt_, table, {200}, kPromptTokens)));
    for (std::uint32_t i = 0; i < 16; ++i) {
        ASSERT_TRUE(same_bits(one.decode(i, kPromptTokens + i, table),
                              two.decode(i, kPromptTokens + i, table)));
    }
}

// Whatever shares its step: one other, others of which none is kept, a prompt's chunk. Small
// companies are where kernels change.
TEST_P(StageBits, AloneEqualsInSmallCompany) {
    const std::vector<std::uint32_t> middle = {GetParam().cuts.at(1)};
    StageChain within = StageChain::split(directory_, middle, options_);
    StageChain apart = StageChain::with_bare_ends(directory_, middle, options_);
    const std::vector<BlockId> table = blocks_from(1, 8);
    const TokenSpan span{{5}, kPromptTokens, table};
    const TokenSpan chunk{tokens(3, 8), 0, blocks_from(40, 1)};
    for (StageChain* chain : {&within, &apart}) {
        chain->prefill(prompt_, table, {200}, 1);
        const auto alone = chain->run({span}, {0}).at(0);
        EXPECT_TRUE(same_bits(alone, chain->run({span, chunk}, {0}).at(0)));
        EXPECT_TRUE(same_bits(alone, chain->run({span, chunk}, {0, 3}).at(0)));
        std::vector<TokenSpan> company = {span};
        std::vector<std::uint32_t> kept = {0};
        for (std::uint32_t others = 1; others <= 9; ++others) {
            company.push_back({{others}, others, blocks_from(20 + others, 1)});
            kept.push_back(others);
            EXPECT_TRUE(same_bits(alone, chain->run(company, {0}).at(0))) << others << " others";
            EXPECT_TRUE(same_bits(alone, chain->run(company, kept).at(0))) << others << " others";
        }
    }
}

// Short prompts too: of two tokens, alone and with others.
TEST_P(StageBits, AShortPromptEqualsItselfInCompany) {
    StageChain chain = StageChain::split(directory_, {GetParam().cuts.at(1)}, options_);
    for (std::uint32_t length : {2U, 3U, 4U, 7U}) {
        const std::vector<std::int64_t> prompt = tokens(length, 9);
        const LogitRows alone = chain.prefill(prompt, blocks_from(1, 1), {length}, length);
        std::vector<TokenSpan> spans = {{prompt, 0, blocks_from(2, 1)}};
        for (std::uint32_t others = 1; others <= 6; ++others) {
            spans.push_back({tokens(2, others), 0, blocks_from(2 + others, 1)});
            std::vector<std::uint32_t> kept(length);
            std::iota(kept.begin(), kept.end(), 0U);
            EXPECT_TRUE(same_bits(alone, chain.run(spans, kept)))
                << length << " tokens, " << others << " others";
        }
    }
}

// A prompt chunk whose logits nobody needs still fills the KV.
TEST_P(StageBits, NoKeptRows) {
    const std::vector<std::uint32_t> middle = {GetParam().cuts.at(1)};
    StageChain within = StageChain::split(directory_, middle, options_);
    StageChain apart = StageChain::with_bare_ends(directory_, middle, options_);
    const std::vector<BlockId> table = blocks_from(1, 8);
    const LogitRows expected = within.prefill(prompt_, table, {200}, 1);
    for (StageChain* chain : {&within, &apart}) {
        EXPECT_TRUE(chain->run({{tokens(90, 7), 0, blocks_from(20, 4)}}, {}).empty());
        EXPECT_TRUE(same_bits(expected, chain->prefill(prompt_, table, {100, 100}, 1)));
    }
}

std::string case_name(const testing::TestParamInfo<ModelCase>& info) {
    std::string name = info.param.name;
    for (char& character : name) {
        character = character == '-' ? '_' : character;
    }
    return name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, StageBits,
                         testing::Values(ModelCase{"llama-int8", {1, 2}},
                                         ModelCase{"llama-int4-asym", {1, 3}},
                                         ModelCase{"qwen3", {1, 2}}, ModelCase{"gemma2", {1, 2}},
                                         ModelCase{"gpt_oss", {1, 2}}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Real, StageBits,
                         testing::Values(ModelCase{"smollm2", {10, 20}, "SHARDLINE_SMOLLM2"}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(
    Slow, StageBits,
    testing::Values(ModelCase{"smollm2-genai", {10, 20}, "SHARDLINE_SMOLLM2_GENAI"},
                    ModelCase{"qwen", {8, 16}, "SHARDLINE_QWEN_05B"}),
    case_name);

}  // namespace
}  // namespace shardline::stage_test
