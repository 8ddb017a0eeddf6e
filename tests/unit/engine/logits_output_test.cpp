#include "engine/logits_output.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace shardline {
namespace {

Activations logits(std::vector<std::int64_t> shape, std::size_t num_values) {
    std::string bytes;
    for (std::size_t i = 0; i < num_values; ++i) {
        const auto value = static_cast<float>(i);
        bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return {{"logits", ElementType::kF32, std::move(shape), std::move(bytes)}};
}

TEST(LogitsOutput, ViewsRowsAndLeavesPaddingOut) {
    for (const auto& shape : {std::vector<std::int64_t>{3, 7}, {3, 1, 7}, {3, 1, 1, 7}}) {
        const Activations outputs = logits(shape, 21);
        const LogitsOutput output(outputs, 3, 5);
        ASSERT_EQ(output.fault(), "");
        EXPECT_EQ(output.row(0).size(), 5U);
        EXPECT_EQ(output.row(2)[0], 14.0F);
        EXPECT_EQ(output.row(2)[4], 18.0F);
    }
}

TEST(LogitsOutput, StepWithoutKeptRowsMayReturnAnything) {
    EXPECT_EQ(LogitsOutput({}, 0, 5).fault(), "");
    EXPECT_EQ(LogitsOutput(logits({0, 7}, 0), 0, 5).fault(), "");
}

TEST(LogitsOutput, NamesWhatDoesNotFit) {
    const auto fault = [](const Activations& outputs) {
        return LogitsOutput(outputs, 3, 5).fault();
    };
    EXPECT_EQ(fault({}), "the chain returned 0 tensors instead of the logits");
    EXPECT_EQ(fault(logits({2, 7}, 14)),
              "the chain returned logits of shape [2, 7] in 56 bytes for 3 rows of 5");
    constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
    const std::vector<std::vector<std::int64_t>> bad = {
        {},        {3},        {21},       {3, 4},         {3, -7},
        {3, 2, 7}, {3, 0, 7},  {7, 3},     {kHuge, kHuge}, {3, kHuge},
        {3, 8},    {3, 1, -1}, {-3, 1, 7},
    };
    for (const auto& shape : bad) {
        EXPECT_THAT(fault(logits(shape, 21)), testing::HasSubstr("of shape"));
    }
    Activations cut = logits({3, 7}, 21);
    cut[0].bytes.pop_back();
    EXPECT_THAT(fault(cut), testing::HasSubstr("in 83 bytes"));
    Activations half = logits({3, 7}, 21);
    half[0].type = ElementType::kF16;
    EXPECT_EQ(fault(half), "the chain returned logits of type f16, not f32");
}

}  // namespace
}  // namespace shardline
