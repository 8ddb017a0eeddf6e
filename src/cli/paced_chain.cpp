#include "cli/paced_chain.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace shardline {

namespace {

constexpr Epoch kEpoch{1};
constexpr double kMaxMilliseconds = 60'000.0;

[[noreturn]] void refuse(const std::string& text) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no pace; write it as 20ms,22ms,20ms+0.5ms/row", text));
}

std::chrono::microseconds parse_milliseconds(std::string_view word, const std::string& text) {
    double number = 0.0;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), number);
    const std::string_view unit(end, static_cast<std::size_t>(word.data() + word.size() - end));
    if (status != std::errc() || unit != "ms" || !(number >= 0.0) || number > kMaxMilliseconds) {
        refuse(text);
    }
    return std::chrono::microseconds(static_cast<std::int64_t>(number * 1000.0));
}

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

std::vector<Pace> parse_paces(const std::string& text) {
    constexpr std::string_view kPerRow = "/row";
    std::string_view stages = text;
    std::chrono::microseconds next_row{0};
    if (const auto plus = stages.find('+'); plus != std::string_view::npos) {
        std::string_view rest = stages.substr(plus + 1);
        if (!rest.ends_with(kPerRow)) {
            refuse(text);
        }
        rest.remove_suffix(kPerRow.size());
        next_row = parse_milliseconds(rest, text);
        stages = stages.substr(0, plus);
    }
    std::vector<Pace> paces;
    while (true) {
        const auto comma = stages.find(',');
        paces.push_back({parse_milliseconds(stages.substr(0, comma), text), next_row});
        if (comma == std::string_view::npos) {
            return paces;
        }
        stages.remove_prefix(comma + 1);
    }
}

PacedChain::PacedChain(const std::filesystem::path& model_directory, const StageSpec& common,
                       std::uint32_t num_layers, const std::vector<Pace>& paces,
                       const LoadProgress& progress) {
    const auto num_stages = static_cast<std::uint32_t>(paces.size());
    if (num_stages > num_layers) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{} paced stages of {} layers", num_stages, num_layers));
    }
    std::vector<std::unique_ptr<StageExecutor>> executors;
    for (std::uint32_t i = 0; i < num_stages; ++i) {
        StageSpec spec = common;
        spec.range = {{num_layers * i / num_stages, num_layers * (i + 1) / num_stages},
                      i == 0,
                      i + 1 == num_stages};
        executors.push_back(
            std::make_unique<PacedExecutor>(load_stage(model_directory, spec, progress), paces[i]));
    }
    chain_ = std::make_unique<LocalChain>(
        std::move(executors), kEpoch,
        ChainCallbacks{
            .on_result =
                [this](StepResult result) { engine_.load()->step_done(std::move(result)); },
            .on_down = [this](const std::string& reason) { engine_.load()->chain_down(reason); }});
}

void PacedChain::serve(ChainListener& engine, std::uint32_t max_in_flight) {
    engine_ = &engine;
    max_in_flight_ = max_in_flight;
    engine.chain_up(kEpoch);
}

}  // namespace shardline
