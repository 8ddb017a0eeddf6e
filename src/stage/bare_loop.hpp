#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "step/stage_spec.hpp"

namespace shardline {

// The yardstick of `bench step`: the unsplit paged model in a plain OpenVINO infer loop, one
// token a step, tensors set once. No plan, no checks, no sampling: what the device can do.
class BareLoop final {
public:
    // `spec` gives settings and pool; its range is ignored.
    BareLoop(const std::filesystem::path& model_directory, const StageSpec& spec);
    ~BareLoop();

    // Milliseconds per step of `num_steps` one-token steps that follow `past_len` tokens.
    double run(std::uint32_t past_len, std::uint32_t num_steps);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace shardline
