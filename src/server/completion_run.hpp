#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "server/api_error.hpp"
#include "text/token_text.hpp"
#include "text/tokenizer.hpp"

namespace shardline {

// Who asks, as Request has it. Behind one key there may be a whole office, so what is private goes
// by the key and whose turn it is by key and address.
struct Caller {
    std::uint64_t owner = 0;
    std::uint64_t client = 0;
};

// What to generate: every prompt `num_choices` times.
struct RunSpec {
    Caller caller;
    std::vector<std::vector<std::int64_t>> prompts;  // none empty, none longer than fits
    std::uint32_t num_choices = 1;
    std::optional<std::uint32_t> max_tokens;  // absent: as many as fit
    std::uint32_t context_length = 0;         // tokens
    std::vector<std::int64_t> stop_tokens;
    std::vector<std::string> stop;
    SamplingParams sampling;
};

// One token for `logprobs`: exact bytes, which may be part of a character.
struct TokenRecord {
    std::string bytes;
    float logprob = 0.0F;
    std::vector<std::pair<std::string, float>> top;
};

// A piece of one choice. Choices are numbered prompt by prompt: prompt * n + i.
struct ChoiceDelta {
    std::uint32_t choice = 0;
    std::string text;
    std::vector<TokenRecord> tokens;     // of the text so far, only with sampling.logprobs
    std::optional<FinishReason> finish;  // kStop or kLength, in the choice's last piece
    std::optional<ApiError> error;       // instead, when the engine gave up
};

struct RunUsage {
    std::uint64_t prompt_tokens = 0;
    std::uint64_t reused_tokens = 0;  // of those, computed before for another request
    std::uint64_t completion_tokens = 0;
    double prompt_ms = 0.0;     // from submit to the first token of any choice
    double predicted_ms = 0.0;  // from there to the last token
};

// The engine's answers to one HTTP request, turned into text. Owned and called by the one thread
// that serves the request; destroying it cancels whatever still runs, so that no path out of a
// route leaves work behind.
class CompletionRun final {
public:
    CompletionRun(Engine& engine, const Tokenizer& tokenizer, RunSpec spec);
    ~CompletionRun();
    CompletionRun(const CompletionRun&) = delete;
    CompletionRun& operator=(const CompletionRun&) = delete;

    // Hands all choices to the engine, or none: the error says why.
    std::optional<ApiError> submit();

    // Pieces that are there now, else those that come within `timeout`; empty on timeout.
    std::vector<ChoiceDelta> next(std::chrono::milliseconds timeout);

    bool finished() const { return num_open_ == 0; }
    std::uint32_t num_choices() const { return static_cast<std::uint32_t>(choices_.size()); }
    RunUsage usage() const;

private:
    using Clock = std::chrono::steady_clock;

    struct Choice {
        std::shared_ptr<RequestHandle> handle;
        std::unique_ptr<TokenText> text;
        std::vector<TokenRecord> held;      // records of text that TokenText holds back
        std::size_t emitted_bytes = 0;      // of text
        std::size_t token_bytes = 0;        // of all tokens whose records were made
        std::vector<std::size_t> held_end;  // token_bytes after each held record
        bool open = true;
    };

    void add_choice(Request& request, std::uint32_t index);
    void take_events(std::uint32_t index, std::vector<ChoiceDelta>& deltas);
    void absorb(std::uint32_t index, RequestEvent event, ChoiceDelta& delta);
    void absorb_token(Choice& choice, const TokenEvent& token, ChoiceDelta& delta);
    void release_records(Choice& choice, bool all, ChoiceDelta& delta);
    void close(Choice& choice);
    void cancel_open();
    TokenRecord make_record(const TokenEvent& token) const;

    Engine& engine_;
    const Tokenizer& tokenizer_;
    const RunSpec spec_;
    std::vector<Choice> choices_;
    std::uint32_t num_open_ = 0;
    std::uint64_t completion_tokens_ = 0;
    Clock::time_point submitted_;
    std::optional<Clock::time_point> first_token_;
    Clock::time_point last_token_;
};

}  // namespace shardline
