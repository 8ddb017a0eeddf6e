#include "server/response_stream.hpp"

#include <utility>

namespace shardline {

ResponseStream::ResponseStream(std::unique_ptr<CompletionRun> run, ResponseHead head,
                               bool with_logprobs, bool include_usage,
                               std::vector<std::string> echoes)
    : run_(std::move(run)),
      head_(std::move(head)),
      with_logprobs_(with_logprobs),
      include_usage_(include_usage),
      echoes_(std::move(echoes)),
      choices_(run_->num_choices()) {}

std::string ResponseStream::events_for(const std::vector<ChoiceDelta>& deltas) {
    std::string events;
    for (const ChoiceDelta& delta : deltas) {
        if (delta.error) {
            return events + events_for(*delta.error);
        }
        ChoiceState& choice = choices_[delta.choice];
        if (!choice.opened) {
            choice.opened = true;
            if (head_.chat) {
                events += sse_event(role_chunk(head_, delta.choice));
            } else if (!echoes_.empty()) {
                ChoiceDelta echo;
                echo.choice = delta.choice;
                echo.text = echoes_[delta.choice];
                events += sse_event(text_chunk(head_, echo, false, 0));
            }
        }
        if (!delta.text.empty() || !delta.tokens.empty()) {
            events += sse_event(text_chunk(head_, delta, with_logprobs_, choice.text_bytes));
            choice.text_bytes += delta.text.size();
        }
        if (delta.finish) {
            events += sse_event(finish_chunk(head_, delta.choice, *delta.finish));
        }
    }
    if (run_->finished() && !finished_) {
        finished_ = true;
        if (include_usage_) {
            events += sse_event(usage_chunk(head_, run_->usage()));
        }
        events += kSseDone;
    }
    return events;
}

std::string ResponseStream::events_for(const ApiError& error) {
    finished_ = true;
    return sse_event(error_json(error));
}

}  // namespace shardline
