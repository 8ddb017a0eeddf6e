#include "cut/shard_writer.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <openvino/pass/serialize.hpp>

#include "base/error.hpp"
#include "chain/part_runner.hpp"
#include "chain/synthetic_decoder.hpp"
#include "cut/probe.hpp"

namespace shardline {

using namespace chain_test;

namespace fs = std::filesystem;

namespace {

class ShardWriter : public testing::Test {
protected:
    void SetUp() override {
        directory_ = fs::temp_directory_path() /
                     fs::path(testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::remove_all(directory_);
        fs::create_directories(directory_);
    }
    void TearDown() override { fs::remove_all(directory_); }

    ModelSource save(const DecoderOptions& options) {
        const fs::path model = directory_ / "model";
        fs::create_directories(model);
        ov::pass::Serialize(model / "openvino_model.xml", model / "openvino_model.bin")
            .run_on_model(make_decoder(options));
        return ModelSource::open(model);
    }

    fs::path directory_;
};

// Reads the shards as anybody would, with nothing but OpenVINO and shard.json.
Logits run_shards(const std::vector<WrittenShard>& shards, const std::vector<std::int64_t>& ids) {
    const std::size_t n = ids.size();
    std::map<std::string, ov::Tensor> values;
    values["input_ids"] = ov::Tensor(ov::element::i64, {1, n});
    std::copy(ids.begin(), ids.end(), values["input_ids"].data<std::int64_t>());
    values["attention_mask"] = ov::Tensor(ov::element::i64, {1, n});
    std::fill_n(values["attention_mask"].data<std::int64_t>(), n, 1);
    values["beam_idx"] = ov::Tensor(ov::element::i32, {1});
    values["beam_idx"].data<std::int32_t>()[0] = 0;
    for (const WrittenShard& shard : shards) {
        auto compiled = test_core().compile_model((shard.directory / "openvino_model.xml").string(),
                                                  "CPU", reproducible_config());
        auto infer = compiled.create_infer_request();
        nlohmann::json json;
        std::ifstream(shard.directory / "shard.json") >> json;
        for (const auto& input : json["inputs"]) {
            infer.set_tensor(input["name"].get<std::string>(),
                             values.at(input["name"].get<std::string>()));
        }
        infer.infer();
        for (const auto& output : json["outputs"]) {
            const ov::Tensor given = infer.get_tensor(output["name"].get<std::string>());
            ov::Tensor kept(given.get_element_type(), given.get_shape());
            given.copy_to(kept);
            values[output["name"].get<std::string>()] = kept;
        }
    }
    const ov::Tensor& logits = values.at("logits");
    return {logits.data<float>(), logits.data<float>() + logits.get_size()};
}

TEST_F(ShardWriter, PlainOpenVinoRunsTheShards) {
    const DecoderOptions options = {.num_layers = 4, .per_layer_inputs = true};
    const ModelSource source = save(options);
    std::vector<std::size_t> progress;
    const auto shards =
        write_shards(source, split_with_bare_ends({1, 3}, 4), directory_ / "shards",
                     [&](std::size_t done, std::size_t) { progress.push_back(done); });
    ASSERT_EQ(shards.size(), 5U);
    EXPECT_EQ(progress, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
    PartSet whole([&] { return source.read_graph(); }, PartSet::Kind::kStateful);
    const auto ids = random_tokens(20, options.vocabulary);
    EXPECT_EQ(max_difference(run_shards(shards, ids), whole.run(split_at({}, 4), ids, 0)), 0.0);
    nlohmann::json json;
    std::ifstream(shards[2].directory / "shard.json") >> json;
    EXPECT_EQ(json["range"]["first_layer"], 1);
    EXPECT_EQ(json["range"]["last_layer"], 3);
    EXPECT_EQ(json["fingerprint"]["xml_sha256"], source.fingerprint().xml_sha256);
    EXPECT_LT(shards[2].weights_bytes, source.info().weights_bytes);
}

TEST_F(ShardWriter, RefusesGapsAndPlacesThatAreTaken) {
    const ModelSource source = save({});
    const auto write = [&](const std::vector<PartRange>& ranges) {
        write_shards(source, ranges, directory_ / "shards", [](std::size_t, std::size_t) {});
    };
    EXPECT_THROW(write({{{0, 1}, true, false}, {{2, 3}, false, true}}), Error);
    EXPECT_THROW(write({{{0, 1}, true, false}}), Error);
    EXPECT_THROW(write({}), Error);
    EXPECT_FALSE(fs::exists(directory_ / "shards"));
    write(split_at({1}, 3));
    EXPECT_THROW(write(split_at({1}, 3)), Error);
}

using RewriteProbe = ShardWriter;

// The window is longer than the probe's prompt and written in a way that the rewrite overlooks.
TEST_F(RewriteProbe, NamesTheAttentionWhoseWindowGetsLost) {
    const ModelSource source = save({.window = 200});
    try {
        check_paged_rewrite(source);
        FAIL() << "a lost window was not noticed";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
        EXPECT_NE(std::string(error.what()).find("sliding window of 'attention.0': 200"),
                  std::string::npos)
            << error.what();
    }
}

TEST_F(RewriteProbe, PassesADecoderWithoutPositions) {
    EXPECT_LT(check_paged_rewrite(save({})), 1e-3);
}

}  // namespace

}  // namespace shardline
