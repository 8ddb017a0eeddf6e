// Every tiny model, every split in two, three and four parts, paged and stateful. Slow.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "chain/part_runner.hpp"
#include "cut/cut.hpp"

namespace shardline::chain_test {

namespace {

constexpr std::size_t kPromptTokens = 90;
constexpr std::size_t kGeneratedTokens = 16;
constexpr std::int64_t kVocabulary = 256;

std::vector<Ranges> all_splits(std::uint32_t num_layers) {
    std::vector<Ranges> splits = {split_with_bare_ends({}, num_layers)};
    for (std::uint32_t a = 1; a < num_layers; ++a) {
        splits.push_back(split_at({a}, num_layers));
        splits.push_back(split_with_bare_ends({a}, num_layers));
        for (std::uint32_t b = a + 1; b < num_layers; ++b) {
            splits.push_back(split_at({a, b}, num_layers));
        }
    }
    return splits;
}

class CutExhaustive : public testing::TestWithParam<std::filesystem::path> {
protected:
    void SetUp() override {
        try {
            num_layers_ = map_layers(graph_of(GetParam())()).num_layers;
        } catch (const Error& error) {
            GTEST_SKIP() << error.what();
        }
    }

    std::uint32_t num_layers_ = 0;
};

TEST_P(CutExhaustive, PagedBitsEqualUnsplit) {
    PartSet parts(graph_of(GetParam()), PartSet::Kind::kPaged);
    const Generation whole =
        generate_paged(parts, split_at({}, num_layers_), random_tokens(kPromptTokens, kVocabulary),
                       kGeneratedTokens);
    for (const Ranges& split : all_splits(num_layers_)) {
        EXPECT_EQ(replay_paged(parts, split, whole), 0.0) << to_text(split);
    }
}

TEST_P(CutExhaustive, StatefulBitsEqualUnsplit) {
    PartSet parts(graph_of(GetParam()), PartSet::Kind::kStateful);
    const Generation whole =
        generate_stateful(parts, split_at({}, num_layers_),
                          random_tokens(kPromptTokens, kVocabulary), kGeneratedTokens);
    for (const Ranges& split : all_splits(num_layers_)) {
        EXPECT_EQ(replay_stateful(parts, split, whole), 0.0) << to_text(split);
    }
}

INSTANTIATE_TEST_SUITE_P(TinyModels, CutExhaustive, testing::ValuesIn(tiny_models()),
                         [](const auto& model) {
                             std::string name = model.param.filename();
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CutExhaustive);

}  // namespace

}  // namespace shardline::chain_test
