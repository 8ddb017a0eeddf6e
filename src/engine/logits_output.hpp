#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "step/step.hpp"

namespace shardline {

// A view of the logits that came back with a step. The activations must outlive it.
class LogitsOutput final {
public:
    // Takes [rows, vocabulary], or the same with dimensions of 1 between, of type f32. Rows wider
    // than `vocab_size` are padded; what lies beyond is not looked at.
    LogitsOutput(const Activations& outputs, std::uint32_t num_rows, std::uint32_t vocab_size);

    // Empty, or what does not fit. A remote stage's output is never trusted to.
    const std::string& fault() const { return fault_; }

    std::span<const float> row(std::uint32_t index) const;

private:
    std::string fault_;
    const Tensor* tensor_ = nullptr;
    std::size_t row_width_ = 0;
    std::uint32_t vocab_size_ = 0;
};

}  // namespace shardline
