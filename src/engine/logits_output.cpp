#include "engine/logits_output.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"

namespace shardline {

namespace {

std::string check_logits(const Activations& outputs, std::uint32_t num_rows,
                         std::uint32_t vocab_size) {
    if (outputs.size() != 1) {
        return fmt::format("the chain returned {} tensors instead of the logits", outputs.size());
    }
    const Tensor& logits = outputs.front();
    if (logits.type != ElementType::kF32) {
        return fmt::format("the chain returned logits of type {}, not f32",
                           element_type_name(logits.type));
    }
    bool fits = logits.shape.size() >= 2 && logits.shape.front() == std::int64_t{num_rows} &&
                logits.shape.back() >= std::int64_t{vocab_size};
    for (std::size_t i = 1; fits && i + 1 < logits.shape.size(); ++i) {
        fits = logits.shape[i] == 1;
    }
    // The byte count is held against the division, which cannot overflow.
    const std::size_t row_bytes = fits ? logits.bytes.size() / num_rows : 0;
    fits = fits && logits.bytes.size() % num_rows == 0 && row_bytes % sizeof(float) == 0 &&
           static_cast<std::size_t>(logits.shape.back()) == row_bytes / sizeof(float);
    if (!fits) {
        return fmt::format("the chain returned logits of shape {} in {} bytes for {} rows of {}",
                           logits.shape, logits.bytes.size(), num_rows, vocab_size);
    }
    return {};
}

}  // namespace

LogitsOutput::LogitsOutput(const Activations& outputs, std::uint32_t num_rows,
                           std::uint32_t vocab_size)
    : vocab_size_(vocab_size) {
    if (num_rows == 0) {
        return;  // a step that keeps no row has nothing to say
    }
    fault_ = check_logits(outputs, num_rows, vocab_size);
    if (fault_.empty()) {
        tensor_ = &outputs.front();
        row_width_ = static_cast<std::size_t>(tensor_->shape.back());
    }
}

std::span<const float> LogitsOutput::row(std::uint32_t index) const {
    SHARDLINE_INVARIANT(tensor_ != nullptr);
    // A string's bytes come from the allocator and are aligned for any scalar.
    const auto* values = reinterpret_cast<const float*>(tensor_->bytes.data());
    return {values + index * row_width_, vocab_size_};
}

}  // namespace shardline
