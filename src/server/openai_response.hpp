#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/api_error.hpp"
#include "server/bounded_json.hpp"
#include "server/completion_run.hpp"

namespace shardline {

// Names one answer in all its chunks.
struct ResponseHead {
    bool chat = false;
    std::string id;     // "chatcmpl-..." or "cmpl-..."
    std::string model;  // served name
    std::int64_t created_s = 0;
};

ResponseHead make_response_head(bool chat, const std::string& model);

// One whole choice, of a response that is not streamed.
struct ChoiceText {
    std::string text;
    std::vector<TokenRecord> tokens;
    FinishReason finish = FinishReason::kStop;
};

// Struct to JSON: the only code, with openai_request, that knows OpenAI's shapes. All pure.
Json error_json(const ApiError& error);
Json model_json(const std::string& model, std::int64_t created_s);
Json model_list_json(const std::string& model, std::int64_t created_s);
Json response_json(const ResponseHead& head, const std::vector<ChoiceText>& choices,
                   const RunUsage& usage, bool with_logprobs);

// The pieces of a stream, in the order in which one choice sends them: role (chat only), then any
// number of pieces of text, then the end; after all choices, usage if asked for.
Json role_chunk(const ResponseHead& head, std::uint32_t choice);
Json text_chunk(const ResponseHead& head, const ChoiceDelta& delta, bool with_logprobs,
                std::size_t text_offset);
Json finish_chunk(const ResponseHead& head, std::uint32_t choice, FinishReason reason);
Json usage_chunk(const ResponseHead& head, const RunUsage& usage);

// One server-sent event.
std::string sse_event(const Json& value);
inline constexpr const char* kSseDone = "data: [DONE]\n\n";
inline constexpr const char* kSseComment = ": waiting\n\n";  // keeps proxies from giving up

}  // namespace shardline
