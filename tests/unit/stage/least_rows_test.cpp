#include "stage/least_rows.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace shardline {
namespace {

// Kernels that change at the given row counts: a row's bits name the kernel.
auto kernels_from(std::vector<std::uint32_t> changes) {
    return [changes = std::move(changes)](std::uint32_t rows) {
        std::size_t kernel = 0;
        for (const std::uint32_t change : changes) {
            kernel += rows >= change ? 1 : 0;
        }
        return std::to_string(kernel);
    };
}

TEST(LeastRows, OneWhenRowsNeverMatter) {
    EXPECT_EQ(least_rows(512, kernels_from({})), 1U);
}

TEST(LeastRows, FromWhereTheLastKernelBegins) {
    EXPECT_EQ(least_rows(512, kernels_from({2})), 2U);
    EXPECT_EQ(least_rows(512, kernels_from({2, 4, 5})), 5U);
    EXPECT_EQ(least_rows(512, kernels_from({8})), 8U);
}

// A kernel that happens to agree further down is no reason to go there: what lies between differs.
TEST(LeastRows, AnOlderAgreementDoesNotCount) {
    const auto odd_one_out = [](std::uint32_t rows) { return std::string(rows == 3 ? "b" : "a"); };
    EXPECT_EQ(least_rows(512, odd_one_out), 4U);
}

TEST(LeastRows, NeverMoreThanAStepHolds) {
    EXPECT_EQ(least_rows(3, kernels_from({2, 4, 5})), 2U);
    EXPECT_EQ(least_rows(1, kernels_from({2})), 1U);
}

TEST(FilledUpRows, FewSizesAndLittleFilling) {
    constexpr std::uint32_t kMost = 512;
    std::set<std::uint32_t> sizes;
    for (std::uint32_t rows = 1; rows <= kMost; ++rows) {
        const std::uint32_t filled = filled_up_rows(rows, kMost);
        EXPECT_GE(filled, rows);
        EXPECT_LE(filled, kMost);
        EXPECT_LE(filled - rows, rows / 8) << rows;
        EXPECT_EQ(filled_up_rows(filled, kMost), filled);
        sizes.insert(filled);
    }
    EXPECT_EQ(sizes.size(), 32U + 4 * 8);
    EXPECT_EQ(filled_up_rows(33, kMost), 36U);
    EXPECT_EQ(filled_up_rows(64, kMost), 64U);
    EXPECT_EQ(filled_up_rows(65, kMost), 72U);
    EXPECT_EQ(filled_up_rows(481, kMost), 512U);
}

TEST(FilledUpRows, NeverMoreThanAStepHolds) {
    EXPECT_EQ(filled_up_rows(490, 500), 500U);
    EXPECT_EQ(filled_up_rows(600, 500), 600U) << "not this function's to refuse";
    EXPECT_EQ(filled_up_rows(0, 500), 0U);
}

}  // namespace
}  // namespace shardline
