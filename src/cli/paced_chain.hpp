#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "stage/stage_loader.hpp"
#include "step/stage_link.hpp"
#include "transport/local_link.hpp"

namespace shardline {

// How long a step takes at least: `first_row` and, for every row beyond, `next_row`.
struct Pace {
    std::chrono::microseconds first_row{0};
    std::chrono::microseconds next_row{0};
};

// "20ms,22ms,20ms+0.5ms/row": one pace per stage; what follows the last holds for the rows beyond
// the first of every stage. Throws Error that shows how it is written.
std::vector<Pace> parse_paces(const std::string& text);

// A chain of stages that answer no sooner than their pace, with what they really computed: a fleet
// of accelerators replayed on whatever machine there is. A simulation, for benches; whoever prints
// figures of it says so. All in this process: layers shared out evenly, the embedding with the
// first and the head with the last stage. Serves one engine after the other.
class PacedChain final : public StageLink {
public:
    // `common` gives everything but the ranges.
    PacedChain(const std::filesystem::path& model_directory, const StageSpec& common,
               std::uint32_t num_layers, const std::vector<Pace>& paces,
               const LoadProgress& progress);

    // The chain is up for this engine; of the one before nothing is in flight.
    void serve(ChainListener& engine, std::uint32_t max_in_flight);

    bool send(Step step) override { return chain_->send(std::move(step)); }
    void cancel(Epoch /*epoch*/, StepId step) override { chain_->cancel(step); }
    std::uint32_t max_in_flight() const override { return max_in_flight_; }

private:
    std::atomic<ChainListener*> engine_ = nullptr;
    std::atomic<std::uint32_t> max_in_flight_ = 1;
    std::unique_ptr<LocalChain> chain_;
};

}  // namespace shardline
