#include "cli/submission.hpp"

#include <utility>

#include "base/error.hpp"

namespace shardline {

void submit_or_throw(Engine& engine, Request request) {
    const SubmitResult result = engine.submit(std::move(request));
    switch (result.status) {
        case SubmitStatus::kAccepted: return;
        case SubmitStatus::kQueueFull: throw Error(ErrorCode::kResourceExhausted, result.reason);
        case SubmitStatus::kChainDown: throw Error(ErrorCode::kUnavailable, result.reason);
        case SubmitStatus::kTooLong: throw Error(ErrorCode::kInvalidArgument, result.reason);
    }
}

void throw_if_failed(const FinishEvent& finish) {
    if (finish.reason == FinishReason::kError) {
        throw Error(finish.error_code, finish.error);
    }
}

}  // namespace shardline
