// The paged rewrite against the stateful graph, where it is known to go wrong: sliding windows
// (openvinotoolkit/openvino#32911), tied embeddings (vllm-project/vllm#32511), kept rows, biases.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "chain/part_runner.hpp"
#include "cut/attention_window.hpp"
#include "cut/cut.hpp"
#include "cut/probe.hpp"

namespace shardline::chain_test {

namespace {

constexpr std::int64_t kVocabulary = 256;

std::filesystem::path tiny_model(const std::string& name) {
    for (const auto& directory : tiny_models()) {
        if (directory.filename() == name) {
            return directory;
        }
    }
    return {};
}

std::uint32_t num_layers_of(const std::filesystem::path& directory) {
    return map_layers(graph_of(directory)()).num_layers;
}

std::int64_t longest_window(const std::filesystem::path& directory) {
    const auto graph = graph_of(directory)();
    std::int64_t longest = 0;
    for (const AttentionWindow& window : stateful_windows(test_core(), graph)) {
        longest = std::max(longest, window.tokens);
    }
    return longest;
}

double relative_difference(PartSet& stateful, PartSet& paged, const Ranges& whole,
                           const std::vector<std::int64_t>& prompt) {
    std::vector<std::int32_t> all(prompt.size());
    std::iota(all.begin(), all.end(), 0);
    const Logits expected = stateful.run(whole, prompt, 0);
    const Logits given = paged.run(whole, {{prompt, 0, {1, 2, 3, 4, 5, 6, 7, 8}}}, all);
    return max_difference(expected, given) / largest_logit(expected);
}

class SlidingWindow : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        directory_ = tiny_model(GetParam());
        if (directory_.empty()) {
            GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no unpacked fixture directory";
        }
    }

    std::filesystem::path directory_;
};

TEST_P(SlidingWindow, PagedAgreesAroundIt) {
    const auto window = static_cast<std::size_t>(longest_window(directory_));
    ASSERT_EQ(window, 64U);
    const Ranges whole = split_at({}, num_layers_of(directory_));
    PartSet stateful(graph_of(directory_), PartSet::Kind::kStateful, exact_config());
    PartSet paged(graph_of(directory_), PartSet::Kind::kPaged, exact_config());
    for (const std::size_t length : {window - 1, window, window + 1, 4 * window}) {
        const auto prompt = random_tokens(length, kVocabulary);
        EXPECT_LT(relative_difference(stateful, paged, whole, prompt), kMaxRewriteDifference)
            << length << " tokens";
    }
}

TEST_P(SlidingWindow, PagedOpsHaveThoseOfTheMasks) {
    const PartRange whole = {{0, num_layers_of(directory_)}, true, true};
    const auto expected = stateful_windows(test_core(), graph_of(directory_)());
    const auto paged = cut_part(graph_of(directory_)(), whole);
    make_paged(paged, whole);
    const auto given = paged_windows(paged);
    ASSERT_EQ(expected.size(), given.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(expected[i].tokens, given[i].tokens) << "layer " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(TinyModels, SlidingWindow,
                         testing::Values("exaone4", "gemma2", "gemma3", "gpt_oss",
                                         "mistral-window"),
                         [](const auto& model) {
                             std::string name = model.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

void check_tied_splits(const std::filesystem::path& directory, std::int64_t vocabulary) {
    EXPECT_LT(map_layers(graph_of(directory)()).head_bytes, 1024U) << "not tied";
    const std::uint32_t n = num_layers_of(directory);
    PartSet parts(graph_of(directory), PartSet::Kind::kPaged);
    const Generation whole =
        generate_paged(parts, split_at({}, n), random_tokens(40, vocabulary), 4);
    for (const Ranges& split :
         {split_at({n / 2}, n), split_at({n / 2, n - 1}, n), split_at({1, n / 2, n - 1}, n)}) {
        EXPECT_EQ(replay_paged(parts, split, whole), 0.0) << to_text(split);
    }
}

TEST(TiedEmbedding, TwoThreeAndFourStages) {
    const auto directory = tiny_model("llama-tied-rope3");
    if (directory.empty()) {
        GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no unpacked fixture directory";
    }
    check_tied_splits(directory, kVocabulary);
}

TEST(TiedEmbedding, TwoThreeAndFourStagesOfAGgufImport) {
    const auto directory = model_from_environment("SHARDLINE_SMOLLM2");
    if (directory.empty()) {
        GTEST_SKIP() << "SHARDLINE_SMOLLM2 names no imported model";
    }
    check_tied_splits(directory, 49152);
}

void check_kept_rows(PartSet& parts, const Ranges& split) {
    const auto prompt = random_tokens(40, kVocabulary);
    std::vector<std::int32_t> all(prompt.size());
    std::iota(all.begin(), all.end(), 0);
    const Logits logits = parts.run(split, {{prompt, 0, {1, 2}}}, all);
    const auto width = static_cast<std::ptrdiff_t>(logits.size() / prompt.size());
    for (const std::vector<std::int32_t>& kept :
         {std::vector<std::int32_t>{39}, {38, 39}, {3, 20, 39}}) {
        Logits expected;
        for (const std::int32_t row : kept) {
            expected.insert(expected.end(), logits.begin() + row * width,
                            logits.begin() + (row + 1) * width);
        }
        EXPECT_EQ(max_difference(parts.run(split, {{prompt, 0, {1, 2}}}, kept), expected), 0.0)
            << to_text(split) << ", " << kept.size() << " rows";
    }
}

// Also with a single kept row, whose matrix product may take another kernel.
TEST(KeptRows, HaveTheBitsOfAllRows) {
    if (tiny_models().empty()) {
        GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no unpacked fixture directory";
    }
    for (const char* name : {"llama-int8", "llama-int4-sym", "gemma2"}) {
        SCOPED_TRACE(name);
        const auto directory = tiny_model(name);
        PartSet parts(graph_of(directory), PartSet::Kind::kPaged);
        check_kept_rows(parts, split_at({}, num_layers_of(directory)));
        check_kept_rows(parts, split_with_bare_ends({}, num_layers_of(directory)));
    }
}

TEST(KeptRows, HaveTheBitsOfAllRowsUnderAWideHead) {
    const auto directory = model_from_environment("SHARDLINE_SMOLLM2");
    if (directory.empty()) {
        GTEST_SKIP() << "SHARDLINE_SMOLLM2 names no imported model";
    }
    PartSet parts(graph_of(directory), PartSet::Kind::kPaged);
    check_kept_rows(parts, split_at({}, num_layers_of(directory)));
}

TEST(RewriteProbe, PassesWhatAgrees) {
    const auto directory = tiny_model("gpt_oss");
    if (directory.empty()) {
        GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no unpacked fixture directory";
    }
    EXPECT_LT(check_paged_rewrite(ModelSource::open(directory)), 1e-3);
}

TEST(RewriteProbe, RefusesARewriteThatDisagrees) {
    const auto directory = tiny_model("mpt");
    if (directory.empty()) {
        GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no unpacked fixture directory";
    }
    try {
        check_paged_rewrite(ModelSource::open(directory));
        FAIL() << "a rewrite with wrong logits was taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
        EXPECT_NE(std::string(error.what()).find("largest difference is 4"), std::string::npos)
            << error.what();
    }
}

}  // namespace

}  // namespace shardline::chain_test
