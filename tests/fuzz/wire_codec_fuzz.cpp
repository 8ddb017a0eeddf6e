// Arbitrary bytes as messages from the wire. What the codec accepts has to keep its promise: the
// plan is safe under the limits, every tensor is as long as its shape says, and it travels again.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "stage.pb.h"
#include "transport/wire_codec.hpp"

namespace {

using namespace shardline;

constexpr StepLimits kLimits{.num_blocks = 16, .max_rows = 8, .max_context = 128};

void check_tensors(const Activations& tensors) {
    for (const Tensor& tensor : tensors) {
        SHARDLINE_INVARIANT(!tensor.name.empty() && tensor.name.size() <= kMaxTensorNameBytes);
        SHARDLINE_INVARIANT(num_elements(tensor.shape) * element_size_bytes(tensor.type) ==
                            tensor.bytes.size());
    }
}

void try_step(wire::Step message) {
    Step step;
    try {
        step = decode_step(std::move(message), kLimits);
    } catch (const Error&) {
        return;
    }
    SHARDLINE_INVARIANT(check_plan(step.plan, kLimits).empty());
    check_tensors(step.activations);
    wire::Step again;
    encode_step(Step(step), again);
    const Step arrived = decode_step(std::move(again), kLimits);
    SHARDLINE_INVARIANT(arrived.plan == step.plan && arrived.activations == step.activations &&
                        arrived.timings == step.timings);
}

void try_result(wire::StepResult message) {
    StepResult result;
    try {
        result = decode_result(std::move(message));
    } catch (const Error&) {
        return;
    }
    check_tensors(result.outputs);
    SHARDLINE_INVARIANT(wire_text(result.error) == result.error);
    wire::StepResult again;
    encode_result(StepResult(result), again);
    SHARDLINE_INVARIANT(decode_result(std::move(again)).outputs == result.outputs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const int bytes = static_cast<int>(size);
    wire::StepFrame frame;
    if (frame.ParseFromArray(data, bytes) && frame.has_step()) {
        try_step(frame.step());
    }
    wire::Step step;
    if (step.ParseFromArray(data, bytes)) {
        try_step(std::move(step));
    }
    wire::StepResult result;
    if (result.ParseFromArray(data, bytes)) {
        try_result(std::move(result));
    }
    wire_text(std::string(reinterpret_cast<const char*>(data), size));
    return 0;
}
