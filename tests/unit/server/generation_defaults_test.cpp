#include "server/generation_defaults.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"

namespace shardline {
namespace {

class GenerationDefaults : public ::testing::Test {
protected:
    GenerationDefaults()
        : directory_(std::filesystem::path(::testing::TempDir()) /
                     ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
        std::filesystem::create_directories(directory_);
    }
    ~GenerationDefaults() override { std::filesystem::remove_all(directory_); }

    void write(const std::string& text) const {
        std::ofstream(directory_ / "generation_config.json") << text;
    }

    const std::filesystem::path directory_;
};

TEST_F(GenerationDefaults, WithoutAFileOpenaisDefaultsHold) {
    const SamplingParams defaults = read_generation_defaults(directory_);
    EXPECT_FLOAT_EQ(defaults.temperature, 1.0F);
    EXPECT_FLOAT_EQ(defaults.top_p, 1.0F);
    EXPECT_EQ(defaults.top_k, 0U);
}

TEST_F(GenerationDefaults, TheModelsRecommendationWins) {
    write(R"({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05,
              "do_sample": true, "eos_token_id": [1, 2]})");
    const SamplingParams defaults = read_generation_defaults(directory_);
    EXPECT_FLOAT_EQ(defaults.temperature, 0.6F);
    EXPECT_FLOAT_EQ(defaults.top_p, 0.95F);
    EXPECT_EQ(defaults.top_k, 20U);
    EXPECT_FLOAT_EQ(defaults.repetition_penalty, 1.05F);
    EXPECT_NO_THROW(defaults.validate(100));
}

TEST_F(GenerationDefaults, NonsenseIsRefusedByName) {
    for (const char* text : {"", "[]", "{", R"({"temperature": "hot"})", R"({"top_p": 2})",
                             R"({"top_k": -5})", R"({"temperature": 1e9})"}) {
        write(text);
        EXPECT_THROW(read_generation_defaults(directory_), Error) << text;
    }
}

}  // namespace
}  // namespace shardline
