#pragma once

#include "model/model_source.hpp"

namespace shardline {

// The largest difference between a paged and a stateful logit that passes, as a share of the
// largest logit. Both ways compute the same sums in another order: with everything in f32 the
// models that agree differ by 4e-7 to 3e-6 of it, a rewrite that loses a bias by 0.7. The bound
// leaves two orders of magnitude for the longer sums of wide and deep models.
inline constexpr double kMaxRewriteDifference = 1e-3;

// Runs a short prompt of random tokens and a few single tokens through the whole model on the CPU,
// paged and stateful (one after the other: the peak is one compiled model), with f32 precision and
// cache and without dynamic quantisation, and compares all logits. Before that it compares what
// each attention may look at: a sliding window longer than the prompt is checked as well.
// Returns the largest difference. Throws Error(kUnsupported) naming it when it is beyond the
// bound, or the attention whose window got lost. Takes about two loads of the model: the caller
// decides when (import, first load) and keeps the verdict.
double check_paged_rewrite(const ModelSource& source);

}  // namespace shardline
