// Every tiny model, cut at every boundary: the bits of the unsplit paged model.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/error.hpp"
#include "chain/part_runner.hpp"
#include "cut/cut.hpp"

namespace shardline::chain_test {

namespace {

constexpr std::size_t kPromptTokens = 90;
constexpr std::size_t kGeneratedTokens = 16;
constexpr std::int64_t kVocabulary = 256;

// What cannot be cut yet, and the op, state or input that the message has to name.
const std::map<std::string, std::string> kRefused = {
    {"lfm2", "cache_params.past.conv"},
    {"llama-stateless", "past_key_values.0.key"},
    {"mamba", "ScaledDotProductAttention"},
};

class CutSplit : public testing::TestWithParam<std::filesystem::path> {
protected:
    void SetUp() override {
        if (kRefused.contains(GetParam().filename())) {
            GTEST_SKIP() << "refused, see CutRefusal";
        }
        num_layers_ = map_layers(graph_of(GetParam())()).num_layers;
    }

    std::uint32_t num_layers_ = 0;
};

std::vector<Ranges> usual_splits(std::uint32_t num_layers) {
    std::vector<Ranges> splits;
    for (std::uint32_t cut = 1; cut < num_layers; ++cut) {
        splits.push_back(split_at({cut}, num_layers));
    }
    splits.push_back(split_at({1, num_layers - 1}, num_layers));
    splits.push_back(split_with_bare_ends({}, num_layers));
    return splits;
}

TEST_P(CutSplit, PagedBitsEqualUnsplit) {
    PartSet parts(graph_of(GetParam()), PartSet::Kind::kPaged);
    const Generation whole =
        generate_paged(parts, split_at({}, num_layers_), random_tokens(kPromptTokens, kVocabulary),
                       kGeneratedTokens);
    for (const Ranges& split : usual_splits(num_layers_)) {
        EXPECT_EQ(replay_paged(parts, split, whole), 0.0) << to_text(split);
    }
}

TEST_P(CutSplit, WorkersReceiveNoTokens) {
    const PartRange middle = {{1, num_layers_ - 1}, false, false};
    const auto stateful = cut_part(graph_of(GetParam())(), middle);
    for (const auto& input : stateful->get_parameters()) {
        EXPECT_NE(input->get_friendly_name(), "input_ids");
    }
    make_paged(stateful, middle);
    std::vector<std::string> activations;
    for (const auto& input : stateful->get_parameters()) {
        const std::string& name = input->get_friendly_name();
        EXPECT_NE(name, "input_ids");
        if (name.starts_with("boundary.")) {
            activations.push_back(name);
            EXPECT_EQ(input->get_partial_shape().size(), 2U);
            EXPECT_TRUE(input->get_partial_shape()[1].is_static());
        }
    }
    EXPECT_EQ(activations, std::vector<std::string>{"boundary.1.0"});
}

INSTANTIATE_TEST_SUITE_P(TinyModels, CutSplit, testing::ValuesIn(tiny_models()),
                         [](const auto& model) {
                             std::string name = model.param.filename();
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CutSplit);

TEST(CutRefusal, NamesWhatIsInTheWay) {
    const auto models = tiny_models();
    if (models.empty()) {
        GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no unpacked fixture directory";
    }
    std::size_t refused = 0;
    for (const auto& directory : models) {
        const auto expected = kRefused.find(directory.filename());
        if (expected == kRefused.end()) {
            continue;
        }
        ++refused;
        const auto check = [&](const auto& attempt) {
            try {
                attempt();
                ADD_FAILURE() << directory << " was taken";
            } catch (const Error& error) {
                EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
                EXPECT_NE(std::string(error.what()).find(expected->second), std::string::npos)
                    << error.what();
            }
        };
        check([&] { map_layers(graph_of(directory)()); });
        check([&] { cut_part(graph_of(directory)(), {{0, 1}, true, false}); });
    }
    EXPECT_EQ(refused, kRefused.size());
}

}  // namespace

}  // namespace shardline::chain_test
