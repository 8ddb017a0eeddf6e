#include "cli/instant_chain.hpp"

#include <cstring>
#include <utility>
#include <vector>

namespace shardline {

namespace {

constexpr Epoch kEpoch{1};
constexpr std::size_t kDrawn = 7;

std::string row_of_logits(std::uint32_t vocab_size) {
    std::vector<float> logits(vocab_size, 0.0F);
    logits.at(kDrawn) = 10.0F;
    std::string bytes(logits.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), logits.data(), bytes.size());
    return bytes;
}

}  // namespace

InstantChain::InstantChain(std::uint32_t vocab_size, std::uint32_t max_in_flight)
    : max_in_flight_(max_in_flight),
      vocab_size_(vocab_size),
      row_(row_of_logits(vocab_size)),
      steps_(max_in_flight) {}

InstantChain::~InstantChain() {
    steps_.close();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void InstantChain::serve(ChainListener& listener) {
    listener_ = &listener;
    listener.chain_up(kEpoch);
    thread_ = std::thread([this] {
        while (const auto step = steps_.pop()) {
            answer(step->plan);
        }
    });
}

void InstantChain::answer(const StepPlan& plan) {
    StepResult result;
    result.epoch = plan.epoch;
    result.step = plan.step;
    Tensor logits;
    logits.name = "logits";
    logits.shape = {static_cast<std::int64_t>(plan.kept_rows.size()), vocab_size_};
    logits.bytes.reserve(plan.kept_rows.size() * row_.size());
    for (std::size_t i = 0; i < plan.kept_rows.size(); ++i) {
        logits.bytes += row_;
    }
    result.outputs.push_back(std::move(logits));
    listener_->step_done(std::move(result));
}

}  // namespace shardline
