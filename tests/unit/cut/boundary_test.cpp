#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/error.hpp"
#include "chain/part_runner.hpp"
#include "chain/synthetic_decoder.hpp"
#include "cut/cut.hpp"

namespace shardline {

using namespace chain_test;

namespace {

std::string refusal(const DecoderOptions& options) {
    try {
        map_layers(make_decoder(options));
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
        return error.what();
    }
    return "taken";
}

TEST(LayerMap, OneResidualCrossesAndWeightsAreCounted) {
    const LayerMap map = map_layers(make_decoder({}));
    ASSERT_EQ(map.num_layers, 3U);
    ASSERT_EQ(map.boundaries.size(), 4U);
    for (std::size_t k = 0; k < map.boundaries.size(); ++k) {
        ASSERT_EQ(map.boundaries[k].size(), 1U) << k;
        EXPECT_EQ(map.boundaries[k][0].name, "boundary." + std::to_string(k) + ".0");
        EXPECT_EQ(map.boundaries[k][0].shape, (ov::PartialShape{-1, -1, 32}));
    }
    EXPECT_EQ(map.embedding_bytes / 4096, 64U * 32 * 4 / 4096);
    EXPECT_EQ(map.head_bytes, 64U * 32 * 4);
    for (const std::uint64_t bytes : map.layer_weights_bytes) {
        EXPECT_GE(bytes, (4U * 32 * 32 + 2 * 2 * 32 * 32) * 4);
        EXPECT_LT(bytes, (4U * 32 * 32 + 2 * 2 * 32 * 32) * 4 + 2048);
    }
}

TEST(LayerMap, PerLayerInputsCrossBesideTheResidual) {
    const LayerMap map = map_layers(make_decoder({.per_layer_inputs = true}));
    EXPECT_EQ(map.boundaries[0].size(), 2U);
    EXPECT_EQ(map.boundaries[1].size(), 2U);
    // The last slice joins the residual before the boundary: one tensor less to carry.
    EXPECT_EQ(map.boundaries[2].size(), 1U);
    EXPECT_EQ(map.boundaries[3].size(), 1U);
}

TEST(LayerMap, RefusesAnAttentionWithoutItsOwnState) {
    EXPECT_NE(refusal({.shared_keys = true}).find("attention.2"), std::string::npos)
        << refusal({.shared_keys = true});
}

TEST(LayerMap, RefusesAStateThatNoAttentionReads) {
    EXPECT_NE(refusal({.running_sum = true}).find("past.1.sum"), std::string::npos)
        << refusal({.running_sum = true});
}

TEST(LayerMap, RefusesDecomposedAttentionNamingTheMissingOp) {
    const std::string message = refusal({.decomposed_attention = true});
    EXPECT_NE(message.find("ScaledDotProductAttention"), std::string::npos) << message;
    EXPECT_NE(message.find("written_out_softmax"), std::string::npos) << message;
}

TEST(CutPart, RefusesRangesThatAreNoPart) {
    const auto refuse = [](const PartRange& range) {
        try {
            cut_part(make_decoder({}), range);
            ADD_FAILURE() << to_string(range) << " was cut";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        }
    };
    refuse({{0, 0}, false, false});
    refuse({{0, 0}, true, true});
    refuse({{2, 1}, false, false});
    refuse({{0, 4}, false, false});
    refuse({{1, 3}, true, false});
    refuse({{0, 2}, false, true});
}

// Eighty layers are a 70B model; the graph is cut from both ends and in the middle.
TEST(CutPart, TakesSecondsForEightyLayers) {
    const auto started = std::chrono::steady_clock::now();
    for (const PartRange& range :
         {PartRange{{0, 27}, true, false}, PartRange{{27, 54}, false, false},
          PartRange{{54, 80}, false, true}}) {
        const auto part = cut_part(make_decoder({.num_layers = 80}), range);
        EXPECT_EQ(part->get_variables().size(), 2 * range.layers.size());
        make_paged(part, range);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(10));
}

void expect_same_bits(const DecoderOptions& options) {
    const auto source = [options] { return make_decoder(options); };
    const std::vector<Ranges> splits = {
        split_at({1}, options.num_layers), split_at({2}, options.num_layers),
        split_at({1, 2}, options.num_layers), split_with_bare_ends({1}, options.num_layers)};
    const auto prompt = random_tokens(40, options.vocabulary);
    PartSet paged(source, PartSet::Kind::kPaged);
    const Generation whole_paged =
        generate_paged(paged, split_at({}, options.num_layers), prompt, 4);
    PartSet stateful(source, PartSet::Kind::kStateful);
    const Generation whole_stateful =
        generate_stateful(stateful, split_at({}, options.num_layers), prompt, 4);
    for (const Ranges& split : splits) {
        EXPECT_EQ(replay_paged(paged, split, whole_paged), 0.0) << to_text(split);
        EXPECT_EQ(replay_stateful(stateful, split, whole_stateful), 0.0) << to_text(split);
    }
}

TEST(CutPart, BitsAreThoseOfTheWhole) {
    expect_same_bits({});
}

// The second tensor passes straight through a part in the middle.
TEST(CutPart, BitsAreThoseOfTheWholeWithTwoCrossingTensors) {
    expect_same_bits({.num_layers = 4, .per_layer_inputs = true});
}

}  // namespace

}  // namespace shardline
