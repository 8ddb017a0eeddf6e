// A body from anybody: either refused with a 400 that can be written as JSON, or a request whose
// every value is in range.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "server/api_error.hpp"
#include "server/bounded_json.hpp"
#include "server/openai_request.hpp"
#include "server/openai_response.hpp"

namespace shardline {
namespace {

constexpr std::uint32_t kVocabSize = 1000;
constexpr std::uint32_t kContextLength = 256;

void check_options(const GenerationOptions& options) {
    options.sampling.validate(kVocabSize);
    SHARDLINE_INVARIANT(options.num_choices >= 1);
    SHARDLINE_INVARIANT(!options.max_tokens || *options.max_tokens >= 1);
    SHARDLINE_INVARIANT(options.max_tokens.value_or(1) <= kContextLength);
    SHARDLINE_INVARIANT(options.stop.size() <= kMaxStopStrings);
    for (const std::string& stop : options.stop) {
        SHARDLINE_INVARIANT(!stop.empty());
    }
}

template <typename Parse>
void refused_or_sound(const Parse& parse) {
    try {
        parse();
    } catch (const RequestError& refused) {
        SHARDLINE_INVARIANT(refused.error().status == 400);
        const std::string text = to_text(error_json(refused.error()));
        SHARDLINE_INVARIANT(Json::parse(text).contains("error"));
    }
}

void parse_both(const std::string& body) {
    RequestLimits limits;
    limits.vocab_size = kVocabSize;
    limits.context_length = kContextLength;
    refused_or_sound([&] {
        const ChatRequest request = parse_chat_request(body, limits);
        check_options(request.options);
        SHARDLINE_INVARIANT(!Json::parse(request.template_inputs).at("messages").empty());
    });
    refused_or_sound([&] {
        const CompletionRequest request = parse_completion_request(body, limits);
        check_options(request.options);
        SHARDLINE_INVARIANT(!request.prompts.empty());
        for (const CompletionPrompt& prompt : request.prompts) {
            if (const auto* ids = std::get_if<std::vector<std::int64_t>>(&prompt)) {
                for (const std::int64_t id : *ids) {
                    SHARDLINE_INVARIANT(id >= 0 && id < kVocabSize);
                }
            }
        }
    });
}

}  // namespace
}  // namespace shardline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const void* bytes = data;
    shardline::parse_both(std::string(static_cast<const char*>(bytes), size));
    return 0;
}
