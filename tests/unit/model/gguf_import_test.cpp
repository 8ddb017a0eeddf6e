#include "model/gguf_import.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "model/model_source.hpp"
#include "unit/model/test_models.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

class SmolLm2ImportTest : public testing::Test {
protected:
    void SetUp() override {
        file_ = path_from_environment("SHARDLINE_SMOLLM2_GGUF");
        if (file_.empty()) {
            GTEST_SKIP() << "SHARDLINE_SMOLLM2_GGUF is not set";
        }
    }

    std::vector<std::string> entries() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(scratch_.path())) {
            names.push_back(entry.path().filename().string());
        }
        return names;
    }

    fs::path file_;
    ScratchDirectory scratch_;
};

TEST_F(SmolLm2ImportTest, MakesACompleteDirectory) {
    const fs::path directory = scratch_.path() / "smol";
    std::size_t num_tokens = 0;
    fs::path written_into;
    double last = -1.0;
    import_gguf(
        file_, directory,
        [&](const ov::AnyMap& metadata, const fs::path& where) {
            num_tokens = metadata.at("tokens").as<std::vector<std::string>>().size();
            written_into = where;
            EXPECT_FALSE(fs::exists(directory));
        },
        [&](const char*, double fraction) {
            EXPECT_GE(fraction, last);
            last = fraction;
        });
    EXPECT_EQ(last, 1.0);
    EXPECT_EQ(num_tokens, 49152U);
    EXPECT_NE(written_into, directory);
    EXPECT_THAT(entries(), ElementsAre("smol"));

    const ModelInfo info = ModelSource::open(directory).info();
    EXPECT_EQ(info.name, "SmolLM2-135M-Instruct.Q4_1");
    EXPECT_EQ(info.architecture, "llama");
    EXPECT_EQ(info.num_layers, 30U);
    EXPECT_EQ(info.hidden_size, 576U);
    EXPECT_EQ(info.vocab_size, 49152U);
    EXPECT_EQ(info.context_length, 8192U);
    EXPECT_THAT(info.eos_token_ids, ElementsAre(0, 2));
}

// The embedding is also the LM head: the weights hold the table once.
TEST_F(SmolLm2ImportTest, TiedEmbeddingIsStoredOnce) {
    const fs::path directory = scratch_.path() / "smol";
    import_gguf(file_, directory, {}, {});
    const ModelSource source = ModelSource::open(directory);
    EXPECT_LT(source.info().weights_bytes, fs::file_size(file_));
    constexpr std::uint64_t kTableBytes = std::uint64_t{49152} * 576 / 2;  // 4 bits at the least
    std::vector<std::pair<std::uint64_t, std::uint64_t>> tables;
    for (const auto& [name, range] : source.weight_map().constants()) {
        if (range.size >= kTableBytes) {
            tables.emplace_back(range.offset, range.size);
        }
    }
    std::sort(tables.begin(), tables.end());
    tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
    EXPECT_EQ(tables.size(), 1U);
}

TEST_F(SmolLm2ImportTest, LeavesNothingBehindWhenItFails) {
    EXPECT_THROW(import_gguf(file_, scratch_.path() / "smol",
                             [](const ov::AnyMap&, const fs::path&) {
                                 throw Error(ErrorCode::kUnsupported, "no such tokenizer");
                             },
                             {}),
                 Error);
    EXPECT_THAT(entries(), ElementsAre());
}

TEST_F(SmolLm2ImportTest, RemovesWhatAKilledImportLeft) {
    constexpr int kNobody = 2147483000;  // beyond any process id
    fs::create_directories(scratch_.path() / ("smol.importing-" + std::to_string(kNobody)) / "x");
    fs::create_directories(scratch_.path() / "smol.importing-1");  // somebody at work
    import_gguf(file_, scratch_.path() / "smol", {}, {});
    EXPECT_THAT(entries(), UnorderedElementsAre("smol", "smol.importing-1"));
}

TEST_F(SmolLm2ImportTest, DoesNotWriteOverWhatIsThere) {
    fs::create_directories(scratch_.path() / "smol" / "precious");
    EXPECT_THROW(import_gguf(file_, scratch_.path() / "smol", {}, {}), Error);
    EXPECT_THAT(entries(), ElementsAre("smol"));
    EXPECT_TRUE(fs::exists(scratch_.path() / "smol" / "precious"));
}

}  // namespace
}  // namespace shardline
