#include "stage/paced_executor.hpp"

#include <thread>
#include <utility>

namespace shardline {

namespace {

class PacedExecutor final : public StageExecutor {
public:
    PacedExecutor(std::unique_ptr<StageExecutor> executor, const Pace& pace)
        : executor_(std::move(executor)), pace_(pace) {}

    Activations run(const StepPlan& plan, Activations activations) override {
        const auto begin = std::chrono::steady_clock::now();
        Activations outputs = executor_->run(plan, std::move(activations));
        std::this_thread::sleep_until(begin + pace_.first_row +
                                      pace_.next_row * (num_rows(plan) - 1));
        return outputs;
    }
    StepLimits limits() const override { return executor_->limits(); }
    EffectiveSettings effective_settings() const override {
        return executor_->effective_settings();
    }

private:
    const std::unique_ptr<StageExecutor> executor_;
    const Pace pace_;
};

}  // namespace

std::unique_ptr<StageExecutor> make_paced_executor(std::unique_ptr<StageExecutor> executor,
                                                   const Pace& pace) {
    return std::make_unique<PacedExecutor>(std::move(executor), pace);
}

}  // namespace shardline
