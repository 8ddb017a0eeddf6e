#include "unit/transport/test_executor.hpp"

#include <cstring>
#include <utility>
#include <vector>

namespace shardline {
namespace {

class TestExecutor final : public StageExecutor {
public:
    TestExecutor(std::uint32_t stage, BeforeStep before, EffectiveSettings effective)
        : stage_(stage), before_(std::move(before)), effective_(std::move(effective)) {}

    Activations run(const StepPlan& plan, Activations activations) override {
        if (before_) {
            before_(stage_, plan);
        }
        for (Tensor& tensor : activations) {
            std::vector<float> values(tensor.bytes.size() / sizeof(float));
            std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
            for (float& value : values) {
                value = 3.0F * value + static_cast<float>(stage_ + 1);
            }
            std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
        }
        return activations;
    }

    StepLimits limits() const override { return kTestLimits; }
    EffectiveSettings effective_settings() const override { return effective_; }

private:
    const std::uint32_t stage_;
    const BeforeStep before_;
    const EffectiveSettings effective_;
};

}  // namespace

std::unique_ptr<StageExecutor> make_test_executor(std::uint32_t stage, BeforeStep before,
                                                  EffectiveSettings effective) {
    return std::make_unique<TestExecutor>(stage, std::move(before), std::move(effective));
}

float expected_value(float input, std::uint32_t num_stages) {
    for (std::uint32_t stage = 0; stage < num_stages; ++stage) {
        input = 3.0F * input + static_cast<float>(stage + 1);
    }
    return input;
}

float input_value(std::uint64_t id, std::size_t index) {
    return static_cast<float>(id % 97) + static_cast<float>(index) / 256.0F;
}

Step make_step(Epoch epoch, std::uint64_t id, std::uint32_t rows) {
    Step step;
    step.plan.epoch = epoch;
    step.plan.step = StepId{id};
    for (std::uint32_t row = 0; row < rows; ++row) {
        step.plan.spans.push_back({.sequence = SequenceId{row},
                                   .past_len = 0,
                                   .num_tokens = 1,
                                   .block_table = {BlockId{row % kTestLimits.num_blocks}}});
        step.plan.kept_rows.push_back(row);
    }
    std::vector<float> values(std::size_t{rows} * kTestHidden);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = input_value(id, i);
    }
    Tensor tensor;
    tensor.name = "boundary.0.0";
    tensor.shape = {rows, kTestHidden};
    tensor.bytes.assign(reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float));
    step.activations.push_back(std::move(tensor));
    return step;
}

}  // namespace shardline
