#include "fleet/fleet_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "stage/stage_loader.hpp"

namespace shardline {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class FleetPlanTest : public testing::Test {
protected:
    void SetUp() override {
        const char* models = std::getenv("SHARDLINE_TINY_MODELS");
        if (models == nullptr || !std::filesystem::exists(models)) {
            GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no directory";
        }
        options_.model_directory = std::filesystem::path(models) / "llama";
    }

    FleetOptions options_;
};

// What is planned is what a worker accepts: nobody is given more blocks than fit by its own count.
TEST_F(FleetPlanTest, EveryStageFitsItsWorker) {
    const ModelSource source = ModelSource::open(options_.model_directory);
    options_.max_sequences = 100'000;  // so that memory decides
    for (std::uint64_t memory_mib = 90; memory_mib < 120; ++memory_mib) {
        const std::vector<WorkerProfile> workers = {{"a:1", memory_mib * kMiB + 12345},
                                                    {"b:1", memory_mib * kMiB * 2}};
        const FleetPlan plan = plan_fleet(source, options_, workers, 1024 * kMiB);
        ASSERT_EQ(plan.remote.size(), 2U);
        for (std::size_t i = 0; i < workers.size(); ++i) {
            const StageFootprint footprint =
                stage_footprint(options_.model_directory, plan.remote[i]);
            EXPECT_LE(plan.remote[i].num_blocks,
                      blocks_that_fit(footprint, workers[i].memory_bytes));
            EXPECT_EQ(plan.remote[i].num_blocks, plan.num_blocks);
        }
        EXPECT_TRUE(plan.remote.back().keeps_rows);
        EXPECT_TRUE(plan.last.at(0).range.with_head);
    }
}

// The stage whose blocks are largest decides, on every stage alike.
TEST_F(FleetPlanTest, KvCacheBoundsThePoolOfEveryStage) {
    const ModelSource source = ModelSource::open(options_.model_directory);
    const std::vector<WorkerProfile> workers = {{"a:1", 1024 * kMiB}, {"b:1", 1024 * kMiB}};
    const FleetPlan whole = plan_fleet(source, options_, {}, 1024 * kMiB);
    const std::uint64_t block_bytes =
        stage_footprint(options_.model_directory, whole.first).kv_bytes_per_block;
    ASSERT_GT(block_bytes, 0U);
    options_.kv_cache_bytes = 7 * block_bytes - 1;
    const FleetPlan alone = plan_fleet(source, options_, {}, 1024 * kMiB);
    EXPECT_EQ(alone.num_blocks, 6U);
    EXPECT_EQ(alone.first.num_blocks, 6U);
    for (const std::uint32_t keep_layers : {0U, 2U}) {
        options_.keep_layers = keep_layers;
        const FleetPlan plan = plan_fleet(source, options_, workers, 1024 * kMiB);
        std::uint64_t largest = stage_footprint(options_.model_directory, plan.first)
                                    .kv_bytes_per_block;  // none without layers of its own
        for (const StageSpec& spec : plan.remote) {
            const StageFootprint footprint = stage_footprint(options_.model_directory, spec);
            largest = std::max(largest, footprint.kv_bytes_per_block);
            EXPECT_EQ(spec.num_blocks, plan.num_blocks);
        }
        EXPECT_EQ(plan.num_blocks, options_.kv_cache_bytes / largest);
        EXPECT_EQ(plan.first.num_blocks, plan.num_blocks);
    }
}

TEST_F(FleetPlanTest, KvCacheNeverExceedsMemoryNorWhatIsUseful) {
    const ModelSource source = ModelSource::open(options_.model_directory);
    const FleetPlan useful = plan_fleet(source, options_, {}, 1024 * kMiB);
    options_.kv_cache_bytes = 1024 * kMiB;
    EXPECT_EQ(plan_fleet(source, options_, {}, 1024 * kMiB).num_blocks, useful.num_blocks);
    options_.max_sequences = 100'000;  // so that memory decides
    const FleetPlan plan = plan_fleet(source, options_, {}, 100 * kMiB);
    EXPECT_EQ(plan.num_blocks,
              blocks_that_fit(stage_footprint(options_.model_directory, plan.first), 100 * kMiB));
}

TEST_F(FleetPlanTest, KvCacheOfLessThanTwoBlocksIsRefused) {
    const ModelSource source = ModelSource::open(options_.model_directory);
    options_.kv_cache_bytes = 1000;
    try {
        plan_fleet(source, options_, {}, 1024 * kMiB);
        FAIL() << "a pool without blocks was planned";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_NE(std::string(error.what()).find("--kv-cache of 1000 bytes"), std::string::npos)
            << error.what();
    }
}

TEST_F(FleetPlanTest, OneProcessIsTheWholeModel) {
    const ModelSource source = ModelSource::open(options_.model_directory);
    const FleetPlan plan = plan_fleet(source, options_, {}, 1024 * kMiB);
    EXPECT_EQ(plan.first.range, (PartRange{{0, source.info().num_layers}, true, true}));
    EXPECT_TRUE(plan.remote.empty());
    EXPECT_TRUE(plan.last.empty());
}

// As many steps at a time as there are processors to compute them.
TEST_F(FleetPlanTest, WorkersOnOneProcessorCountOnce) {
    const ModelSource source = ModelSource::open(options_.model_directory);
    const auto processors = [&](const std::vector<std::string>& names) {
        std::vector<WorkerProfile> workers;
        for (const std::string& name : names) {
            workers.push_back({"a:1", 1024 * kMiB, 1.0, name});
        }
        return plan_fleet(source, options_, workers, 1024 * kMiB).num_processors;
    };
    EXPECT_EQ(processors({"den/CPU", "den/CPU"}), 1U);
    EXPECT_EQ(processors({"den/CPU", "den/GPU"}), 2U);
    EXPECT_EQ(processors({"den/CPU", "attic/CPU"}), 2U);
    EXPECT_EQ(processors({"", ""}), 2U);  // unknown: taken for different ones
    EXPECT_EQ(processors({}), 1U);
    options_.keep_layers = 1;
    EXPECT_EQ(processors({"den/CPU"}), 2U);
}

TEST_F(FleetPlanTest, ContextBeyondTheModelsIsRefused) {
    const ModelSource source = ModelSource::open(options_.model_directory);
    options_.max_context = source.info().context_length + 1;
    EXPECT_THROW(plan_fleet(source, options_, {}, 1024 * kMiB), Error);
}

}  // namespace
}  // namespace shardline
