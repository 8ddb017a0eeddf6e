#include "server/openai_response.hpp"

#include <fmt/format.h>

#include <chrono>
#include <random>

namespace shardline {
namespace {

Json bytes_json(const std::string& bytes) {
    Json list = Json::array();
    for (const char byte : bytes) {
        list.push_back(static_cast<unsigned char>(byte));
    }
    return list;
}

// JSON has no infinity, and a token that cannot be drawn has a logprob of minus infinity.
double finite(float logprob) {
    constexpr float kLeastLogprob = -9999.0F;
    return logprob >= kLeastLogprob ? logprob : kLeastLogprob;
}

Json chat_token_json(const std::string& bytes, float logprob) {
    return {{"token", bytes}, {"logprob", finite(logprob)}, {"bytes", bytes_json(bytes)}};
}

Json chat_logprobs(const std::vector<TokenRecord>& tokens) {
    Json content = Json::array();
    for (const TokenRecord& token : tokens) {
        Json entry = chat_token_json(token.bytes, token.logprob);
        entry["top_logprobs"] = Json::array();
        for (const auto& [bytes, logprob] : token.top) {
            entry["top_logprobs"].push_back(chat_token_json(bytes, logprob));
        }
        content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// The older form keys alternatives by text; a token that is part of a character has no text, so
// it is written as OpenAI writes it: "bytes:\xf0\x9f".
std::string token_key(const std::string& bytes) {
    const Json probe = bytes;
    try {
        static_cast<void>(probe.dump());
        return bytes;
    } catch (const Json::type_error&) {
        std::string key = "bytes:";
        for (const char byte : bytes) {
            key += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
        }
        return key;
    }
}

Json legacy_logprobs(const std::vector<TokenRecord>& tokens, std::size_t text_offset) {
    Json names = Json::array();
    Json logprobs = Json::array();
    Json tops = Json::array();
    Json offsets = Json::array();
    for (const TokenRecord& token : tokens) {
        names.push_back(token_key(token.bytes));
        logprobs.push_back(finite(token.logprob));
        Json top = Json::object();
        for (const auto& [bytes, logprob] : token.top) {
            top[token_key(bytes)] = finite(logprob);
        }
        tops.push_back(std::move(top));
        offsets.push_back(text_offset);
        text_offset += token.bytes.size();
    }
    return {{"text_offset", std::move(offsets)},
            {"token_logprobs", std::move(logprobs)},
            {"tokens", std::move(names)},
            {"top_logprobs", std::move(tops)}};
}

const char* finish_name(FinishReason reason) {
    return reason == FinishReason::kLength ? "length" : "stop";
}

Json head_json(const ResponseHead& head, bool chunk) {
    const char* object = "text_completion";
    if (head.chat) {
        object = chunk ? "chat.completion.chunk" : "chat.completion";
    }
    return {
        {"id", head.id}, {"object", object}, {"created", head.created_s}, {"model", head.model}};
}

double per_second(std::uint64_t count, double ms) {
    constexpr double kMsPerSecond = 1000.0;
    return ms > 0.0 ? static_cast<double>(count) * kMsPerSecond / ms : 0.0;
}

void add_usage(Json& target, const RunUsage& usage) {
    target["usage"] = {{"prompt_tokens", usage.prompt_tokens},
                       {"completion_tokens", usage.completion_tokens},
                       {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                       {"prompt_tokens_details", {{"cached_tokens", usage.reused_tokens}}}};
    // The first token belongs to the prompt's time, the others to the decoding.
    const std::uint64_t decoded = usage.completion_tokens > 0 ? usage.completion_tokens - 1 : 0;
    target["timings"] = {{"prompt_n", usage.prompt_tokens},
                         {"prompt_ms", usage.prompt_ms},
                         {"prompt_per_second", per_second(usage.prompt_tokens, usage.prompt_ms)},
                         {"predicted_n", usage.completion_tokens},
                         {"predicted_ms", usage.predicted_ms},
                         {"predicted_per_second", per_second(decoded, usage.predicted_ms)}};
}

Json one_choice_chunk(const ResponseHead& head, Json choice) {
    Json chunk = head_json(head, true);
    chunk["choices"] = Json::array({std::move(choice)});
    return chunk;
}

}  // namespace

ResponseHead make_response_head(bool chat, const std::string& model) {
    std::random_device source;
    ResponseHead head;
    head.chat = chat;
    head.id = fmt::format("{}-{:08x}{:08x}{:08x}", chat ? "chatcmpl" : "cmpl", source(), source(),
                          source());
    head.model = model;
    head.created_s = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    return head;
}

Json error_json(const ApiError& error) {
    Json inner = {{"message", error.message}, {"type", error.type}};
    inner["param"] = error.param ? Json(*error.param) : Json();
    inner["code"] = error.code ? Json(*error.code) : Json();
    return {{"error", std::move(inner)}};
}

Json model_json(const std::string& model, std::int64_t created_s) {
    return {{"id", model}, {"object", "model"}, {"created", created_s}, {"owned_by", "shardline"}};
}

Json model_list_json(const std::string& model, std::int64_t created_s) {
    return {{"object", "list"}, {"data", Json::array({model_json(model, created_s)})}};
}

Json response_json(const ResponseHead& head, const std::vector<ChoiceText>& choices,
                   const RunUsage& usage, bool with_logprobs) {
    Json response = head_json(head, false);
    response["choices"] = Json::array();
    for (std::size_t i = 0; i < choices.size(); ++i) {
        const ChoiceText& text = choices[i];
        Json choice = {{"index", i}};
        if (head.chat) {
            choice["message"] = {
                {"role", "assistant"}, {"content", text.text}, {"refusal", nullptr}};
            choice["logprobs"] = with_logprobs ? chat_logprobs(text.tokens) : Json();
        } else {
            choice["text"] = text.text;
            choice["logprobs"] = with_logprobs ? legacy_logprobs(text.tokens, 0) : Json();
        }
        choice["finish_reason"] = finish_name(text.finish);
        response["choices"].push_back(std::move(choice));
    }
    add_usage(response, usage);
    return response;
}

Json role_chunk(const ResponseHead& head, std::uint32_t choice) {
    return one_choice_chunk(head, {{"index", choice},
                                   {"delta", {{"role", "assistant"}, {"content", ""}}},
                                   {"logprobs", nullptr},
                                   {"finish_reason", nullptr}});
}

Json text_chunk(const ResponseHead& head, const ChoiceDelta& delta, bool with_logprobs,
                std::size_t text_offset) {
    Json choice = {{"index", delta.choice}};
    if (head.chat) {
        choice["delta"] = {{"content", delta.text}};
        choice["logprobs"] = with_logprobs ? chat_logprobs(delta.tokens) : Json();
    } else {
        choice["text"] = delta.text;
        choice["logprobs"] = with_logprobs ? legacy_logprobs(delta.tokens, text_offset) : Json();
    }
    choice["finish_reason"] = nullptr;
    return one_choice_chunk(head, std::move(choice));
}

Json finish_chunk(const ResponseHead& head, std::uint32_t index, FinishReason reason) {
    Json choice = {{"index", index}};
    if (head.chat) {
        choice["delta"] = Json::object();
    } else {
        choice["text"] = "";
    }
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = finish_name(reason);
    return one_choice_chunk(head, std::move(choice));
}

Json usage_chunk(const ResponseHead& head, const RunUsage& usage) {
    Json chunk = head_json(head, true);
    chunk["choices"] = Json::array();
    add_usage(chunk, usage);
    return chunk;
}

std::string sse_event(const Json& value) {
    return "data: " + to_text(value) + "\n\n";
}

}  // namespace shardline
