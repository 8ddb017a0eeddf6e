#include "transport/grpc_chain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "transport/worker_client.hpp"
#include "unit/transport/chain_harness.hpp"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr Epoch kEpoch{7};

void expect_computed(const StepResult& result, std::uint32_t num_stages) {
    ASSERT_EQ(result.status, StepStatus::kDone) << result.error;
    ASSERT_EQ(result.outputs.size(), 1U);
    const Tensor& tensor = result.outputs.front();
    ASSERT_EQ(tensor.shape.size(), 2U);
    for (std::size_t i = 0; i < tensor.bytes.size() / sizeof(float); ++i) {
        float value = 0;
        std::memcpy(&value, tensor.bytes.data() + i * sizeof(float), sizeof value);
        ASSERT_EQ(value, expected_value(input_value(to_number(result.step), i), num_stages));
    }
    EXPECT_EQ(result.timings.size(), num_stages);
}

class GrpcChainOf : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(GrpcChainOf, StepsComeBackInOrderAndComputed) {
    TestFleet fleet(GetParam());
    ChainLog log;
    const auto chain = fleet.open(kEpoch, log);
    constexpr std::size_t kSteps = 200;
    for (std::size_t id = 1; id <= kSteps; ++id) {
        while (!chain->send(make_step(kEpoch, id))) {
            ASSERT_TRUE(log.wait_results(id - kMaxStepsInFlight, 5s)) << log.down_reason();
        }
    }
    ASSERT_TRUE(log.wait_results(kSteps, 5s)) << log.down_reason();
    const auto results = log.results();
    ASSERT_EQ(results.size(), kSteps);
    for (std::size_t i = 0; i < kSteps; ++i) {
        ASSERT_EQ(to_number(results[i].step), i + 1);
        expect_computed(results[i], GetParam());
    }
    EXPECT_EQ(log.num_downs(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Workers, GrpcChainOf, ::testing::Values(1U, 2U, 3U, 5U));

}  // namespace
}  // namespace shardline
