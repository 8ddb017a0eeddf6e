#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sampling/sampling_params.hpp"

namespace shardline {

// What a request is checked against, and what holds when it is silent.
struct RequestLimits {
    std::uint32_t vocab_size = 0;
    std::uint32_t context_length = 0;  // tokens
    std::uint32_t max_choices = 64;    // prompts times n
    SamplingParams default_sampling;   // temperature as OpenAI's (1.0) or the model's own
};

inline constexpr std::uint32_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopBytes = 1024;  // of one stop string
inline constexpr std::uint32_t kMaxChoicesPerPrompt = 32;
inline constexpr std::uint32_t kDefaultCompletionTokens = 16;  // OpenAI's, of /v1/completions

// What both endpoints share. All values are checked and in range.
struct GenerationOptions {
    std::string model;                        // empty: whichever is served
    std::optional<std::uint32_t> max_tokens;  // at least 1, at most the context; absent: all of it
    std::vector<std::string> stop;            // none empty
    SamplingParams sampling;                  // the seed is drawn when the request names none
    std::uint32_t num_choices = 1;            // per prompt
    bool ignore_eos = false;
    bool stream = false;
    bool include_usage = false;  // in a stream
};

struct ChatRequest {
    GenerationOptions options;
    std::string template_inputs;  // JSON object for the chat template: "messages" and more
};

using CompletionPrompt = std::variant<std::string, std::vector<std::int64_t>>;

struct CompletionRequest {
    GenerationOptions options;
    std::vector<CompletionPrompt> prompts;  // at least one
    bool echo = false;                      // the prompt is repeated in front of the answer
};

// Body to struct: with openai_response the only code that knows OpenAI's shapes. Pure and
// thread-safe. Throws RequestError (400) whose `param` names the field; unknown fields are
// ignored, as OpenAI's own server and its clients expect of extensions.
ChatRequest parse_chat_request(const std::string& body, const RequestLimits& limits);
CompletionRequest parse_completion_request(const std::string& body, const RequestLimits& limits);

}  // namespace shardline
