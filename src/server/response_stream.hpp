#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/completion_run.hpp"
#include "server/openai_response.hpp"

namespace shardline {

// One streamed answer as server-sent events: which chunk follows which. Owned and called by the
// thread that serves the request.
class ResponseStream final {
public:
    // `echoes`: text in front of each choice's answer; empty when there is none.
    ResponseStream(std::unique_ptr<CompletionRun> run, ResponseHead head, bool with_logprobs,
                   bool include_usage, std::vector<std::string> echoes);

    // Events for the pieces, and for the end of the stream when they hold the end.
    std::string events_for(const std::vector<ChoiceDelta>& deltas);
    // The last event of a stream that cannot go on.
    std::string events_for(const ApiError& error);

    CompletionRun& run() { return *run_; }
    bool finished() const { return finished_; }

private:
    struct ChoiceState {
        bool opened = false;
        std::size_t text_bytes = 0;  // of the answer so far: offsets in the older logprobs
    };

    std::unique_ptr<CompletionRun> run_;
    const ResponseHead head_;
    const bool with_logprobs_;
    const bool include_usage_;
    const std::vector<std::string> echoes_;
    std::vector<ChoiceState> choices_;
    bool finished_ = false;
};

}  // namespace shardline
