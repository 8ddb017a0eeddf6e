#include "stage/kv_pool.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "cut/cut.hpp"
#include "model/model_source.hpp"
#include "stage/device_settings.hpp"
#include "stage/footprint.hpp"

namespace shardline {
namespace {

constexpr std::uint32_t kBlocks = 5;

class KvPoolTest : public testing::Test {
protected:
    void SetUp() override {
        const char* tiny = std::getenv("SHARDLINE_TINY_MODELS");
        if (tiny == nullptr || !std::filesystem::exists(tiny)) {
            GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no directory";
        }
        directory_ = std::filesystem::path(tiny) / "llama";
        spec_.range = {{1, 3}, false, false};
        spec_.max_rows = 8;
    }

    std::shared_ptr<ov::Model> paged_part() const {
        auto part = cut_part(ModelSource::open(directory_).read_graph(), spec_.range);
        make_paged(part, spec_.range);
        return part;
    }

    ov::CompiledModel compile() const {
        ov::Core core;
        return core.compile_model(paged_part(), "CPU", compile_settings(spec_));
    }

    std::filesystem::path directory_;
    StageSpec spec_;
};

// The planner counts blocks by the graph; the device must agree to the byte.
TEST_F(KvPoolTest, BlocksAreAsLargeAsTheFootprintSays) {
    for (const char* precision : {"u8", "f16", "f32"}) {
        spec_.numeric.kv_cache_precision = precision;
        const KvPool pool(compile(), kBlocks);
        EXPECT_EQ(pool.bytes_per_block(), part_footprint(*paged_part(), spec_).kv_bytes_per_block)
            << precision;
        EXPECT_EQ(pool.device_blocks_per_block(), 1U);
    }
}

TEST_F(KvPoolTest, ACopyMovesOneBlockInEveryCache) {
    ov::CompiledModel compiled = compile();
    KvPool pool(compiled, kBlocks);
    ov::InferRequest infer = compiled.create_infer_request();
    pool.bind(infer);
    std::size_t num_caches = 0;
    for (const auto& port : compiled.inputs()) {
        if (!is_kv_port(port)) {
            continue;
        }
        ++num_caches;
        ov::Tensor cache = infer.get_tensor(port);
        const std::size_t block_bytes = cache.get_byte_size() / kBlocks;
        auto* bytes = static_cast<std::uint8_t*>(cache.data());
        std::memset(bytes + 2 * block_bytes, static_cast<int>(num_caches), block_bytes);
    }
    EXPECT_EQ(num_caches, 4U);
    pool.copy({{.from = BlockId{2}, .to = BlockId{4}}, {.from = BlockId{3}, .to = BlockId{3}}});
    std::size_t cache_number = 0;
    for (const auto& port : compiled.inputs()) {
        if (!is_kv_port(port)) {
            continue;
        }
        ++cache_number;
        const ov::Tensor cache = infer.get_tensor(port);
        const std::size_t block_bytes = cache.get_byte_size() / kBlocks;
        const auto* bytes = static_cast<const std::uint8_t*>(cache.data());
        for (std::size_t block = 0; block < kBlocks; ++block) {
            const std::string expected(
                block_bytes, block == 2 || block == 4 ? static_cast<char>(cache_number) : '\0');
            EXPECT_EQ(std::memcmp(bytes + block * block_bytes, expected.data(), block_bytes), 0)
                << "cache " << cache_number << ", block " << block;
        }
    }
}

// Later tokens would rescale earlier ones, and a rewind would not be exact.
TEST_F(KvPoolTest, KeysQuantisedByChannelAreRefused) {
    ov::AnyMap settings = compile_settings(spec_);
    settings["KEY_CACHE_QUANT_MODE"] = "BY_CHANNEL";
    ov::Core core;
    const ov::CompiledModel compiled = core.compile_model(paged_part(), "CPU", settings);
    EXPECT_THROW(KvPool(compiled, kBlocks), Error);
}

TEST_F(KvPoolTest, AnUnusedPoolTakesNoMemory) {
    const ov::CompiledModel compiled = compile();
    const std::uint64_t before = process_memory(own_pid()).anonymous_bytes;
    const KvPool pool(compiled, 100'000);
    const std::uint64_t reserved = pool.bytes_per_block() * pool.num_blocks();
    EXPECT_GT(reserved, std::uint64_t{500} << 20);
    EXPECT_LT(process_memory(own_pid()).anonymous_bytes - before, std::uint64_t{8} << 20);
}

}  // namespace
}  // namespace shardline
