#include "server/generation_routes.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "server/connection_server.hpp"
#include "server/http_server.hpp"
#include "server/request_gate.hpp"
#include "server/response_stream.hpp"
#include "text/chat_prompt.hpp"

namespace shardline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{100};    // how often a client's absence is looked for
constexpr std::chrono::seconds kFirstPiece{10};    // a stream's status waits so long
constexpr std::chrono::seconds kCommentEvery{15};  // in a stream that is silent
constexpr int kClientGone = 499;                   // nobody reads it; for the log
constexpr std::size_t kMaxBytesPerToken = 256;     // longer runs of text in one token are rare

ApiError timed_out(std::chrono::milliseconds limit) {
    ApiError error;
    error.status = 504;
    error.message = fmt::format("The answer was not complete within {} s.",
                                std::chrono::duration_cast<std::chrono::seconds>(limit).count());
    error.type = "timeout_error";
    error.code = "timeout";
    return error;
}

}  // namespace

struct GenerationRoutes::Job {
    std::unique_ptr<CompletionRun> run;
    ResponseHead head;
    bool stream = false;
    bool with_logprobs = false;
    bool include_usage = false;
    std::vector<std::string> echoes;  // per choice; empty without echo
    Clock::time_point deadline;
    std::optional<ResponseStream> events;  // once the stream has begun
    std::string ready;                     // events to send first
    Clock::time_point last_sent;
};

GenerationRoutes::GenerationRoutes(const ServerOptions& options, Engine& engine,
                                   const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                                   const ModelInfo& model, const std::atomic<bool>& stopping)
    : options_(options),
      engine_(engine),
      tokenizer_(tokenizer),
      chat_template_(chat_template),
      model_(model),
      stopping_(stopping) {
    limits_.vocab_size = model.vocab_size;
    limits_.context_length = options.context_length;
    limits_.max_choices = options.max_choices;
    limits_.default_sampling = options.default_sampling;
}

void GenerationRoutes::chat(const std::string& body, const Caller& caller,
                            httplib::Response& response) const {
    const ChatRequest request = parse_chat_request(body, limits_);
    check_model(request.options.model);
    if (chat_template_ == nullptr) {
        throw RequestError(bad_request(
            fmt::format("The model '{}' has no chat template (chat_template.jinja), so it cannot "
                        "chat; use /v1/completions.",
                        options_.model_id),
            "messages", "no_chat_template"));
    }
    // Text that cannot fit is refused before it keeps the tokenizer from everybody else.
    check_length(request.template_inputs.size() / kMaxBytesPerToken);
    RunSpec spec = make_spec(request.options, caller);
    spec.prompts = {encode_chat(tokenizer_, *chat_template_, request.template_inputs, true)};
    check_length(spec.prompts.front().size());
    auto job = std::make_shared<Job>();
    job->head = make_response_head(true, options_.model_id);
    job->stream = request.options.stream;
    job->include_usage = request.options.include_usage;
    job->with_logprobs = request.options.sampling.logprobs;
    job->run = std::make_unique<CompletionRun>(engine_, tokenizer_, std::move(spec));
    run(job, response);
}

void GenerationRoutes::completion(const std::string& body, const Caller& caller,
                                  httplib::Response& response) const {
    const CompletionRequest request = parse_completion_request(body, limits_);
    check_model(request.options.model);
    auto job = std::make_shared<Job>();
    RunSpec spec = make_spec(request.options, caller);
    for (const CompletionPrompt& prompt : request.prompts) {
        const auto* text = std::get_if<std::string>(&prompt);
        if (text != nullptr) {
            check_length(text->size() / kMaxBytesPerToken);  // as above
        }
        spec.prompts.push_back(text != nullptr ? encode_completion(tokenizer_, *text)
                                               : std::get<std::vector<std::int64_t>>(prompt));
        const auto& tokens = spec.prompts.back();
        if (tokens.empty()) {
            throw RequestError(bad_request("'prompt' holds no token.", "prompt"));
        }
        check_length(tokens.size());
        for (std::uint32_t i = 0; request.echo && i < request.options.num_choices; ++i) {
            job->echoes.push_back(text != nullptr ? *text : tokenizer_.decode(tokens));
        }
    }
    job->head = make_response_head(false, options_.model_id);
    job->stream = request.options.stream;
    job->include_usage = request.options.include_usage;
    job->with_logprobs = request.options.sampling.logprobs;
    job->run = std::make_unique<CompletionRun>(engine_, tokenizer_, std::move(spec));
    run(job, response);
}

void GenerationRoutes::check_model(const std::string& asked) const {
    if (!asked.empty() && asked != options_.model_id) {
        throw RequestError(unknown_model(asked, options_.model_id));
    }
}

void GenerationRoutes::check_length(std::size_t num_tokens) const {
    if (num_tokens >= options_.context_length) {
        throw RequestError(context_exceeded(options_.context_length, num_tokens));
    }
}

RunSpec GenerationRoutes::make_spec(const GenerationOptions& options, const Caller& caller) const {
    RunSpec spec;
    spec.caller = caller;
    spec.num_choices = options.num_choices;
    spec.max_tokens = options.max_tokens;
    spec.context_length = options_.context_length;
    if (!options.ignore_eos) {
        spec.stop_tokens = model_.eos_token_ids;
    }
    spec.stop = options.stop;
    spec.sampling = options.sampling;
    spec.sampling.validate(limits_.vocab_size);
    return spec;
}

void GenerationRoutes::run(const std::shared_ptr<Job>& job, httplib::Response& response) const {
    job->deadline = Clock::now() + options_.request_timeout;
    ConnectionServer::current().stream->set_write_deadline(job->deadline +
                                                           options_.connections.write_stall);
    if (const auto error = job->run->submit()) {
        write_error(response, *error);
    } else if (job->stream) {
        stream(job, response);
    } else {
        respond(*job, response);
    }
}

std::optional<ApiError> GenerationRoutes::reason_to_stop(const Job& job) const {
    if (ConnectionServer::current().stream->peer_gone()) {
        ApiError error;
        error.status = kClientGone;
        error.message = "The client has left.";
        return error;
    }
    if (stopping_) {
        return chain_down("the server is shutting down");
    }
    if (Clock::now() >= job.deadline) {
        return timed_out(options_.request_timeout);
    }
    return std::nullopt;
}

void GenerationRoutes::respond(Job& job, httplib::Response& response) const {
    std::vector<ChoiceText> choices(job.run->num_choices());
    for (std::size_t i = 0; i < job.echoes.size(); ++i) {
        choices[i].text = job.echoes[i];
    }
    while (!job.run->finished()) {
        for (ChoiceDelta& delta : job.run->next(kLook)) {
            if (delta.error) {
                write_error(response, *delta.error);
                return;
            }
            ChoiceText& choice = choices[delta.choice];
            choice.text += delta.text;
            choice.finish = delta.finish.value_or(choice.finish);
            std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(choice.tokens));
        }
        if (const auto error = reason_to_stop(job)) {
            write_error(response, *error);
            return;
        }
    }
    response.set_content(
        to_text(response_json(job.head, choices, job.run->usage(), job.with_logprobs)),
        "application/json");
}

void GenerationRoutes::stream(const std::shared_ptr<Job>& job, httplib::Response& response) const {
    // Until the first piece is there, a failure can still be an HTTP status.
    const auto patience = Clock::now() + kFirstPiece;
    std::vector<ChoiceDelta> first;
    while (first.empty() && Clock::now() < patience) {
        first = job->run->next(kLook);
        if (const auto error = reason_to_stop(*job)) {
            write_error(response, *error);
            return;
        }
    }
    if (!first.empty() && first.front().error) {
        write_error(response, *first.front().error);
        return;
    }
    job->events.emplace(std::move(job->run), job->head, job->with_logprobs, job->include_usage,
                        job->echoes);
    job->ready = job->events->events_for(first);
    job->last_sent = Clock::now();
    response.set_header("Cache-Control", "no-cache");
    // Exactly this type: httplib compresses text of any other, and compressing holds events back.
    response.set_chunked_content_provider(
        "text/event-stream", [this, job](std::size_t /*offset*/, httplib::DataSink& sink) {
            std::string events = std::exchange(job->ready, "");
            if (events.empty() && !job->events->finished()) {
                events = job->events->events_for(job->events->run().next(kLook));
            }
            if (!job->events->finished()) {
                if (const auto error = reason_to_stop(*job)) {
                    if (error->status == kClientGone) {
                        return false;
                    }
                    events += job->events->events_for(*error);
                }
            }
            const auto now = Clock::now();
            if (events.empty() && now - job->last_sent >= kCommentEvery) {
                events = kSseComment;
            }
            if (!events.empty()) {
                job->last_sent = now;
                if (!sink.write(events.data(), events.size())) {
                    return false;
                }
            }
            if (job->events->finished()) {
                sink.done();
            }
            return true;
        });
}

}  // namespace shardline
