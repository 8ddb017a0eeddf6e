#include "server/openai_request.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/api_error.hpp"

namespace shardline {
namespace {

RequestLimits limits() {
    RequestLimits limits;
    limits.vocab_size = 1000;
    limits.context_length = 256;
    limits.default_sampling.temperature = 1.0F;
    return limits;
}

nlohmann::json chat_with(const char* field, const nlohmann::json& value) {
    nlohmann::json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
    body[field] = value;
    return body;
}

ChatRequest parse_chat(const nlohmann::json& body) {
    return parse_chat_request(body.dump(), limits());
}

// The field that is blamed; "-" when none is, "" when the request was taken.
std::string blamed(const nlohmann::json& body, bool chat = true) {
    try {
        if (chat) {
            parse_chat_request(body.dump(), limits());
        } else {
            parse_completion_request(body.dump(), limits());
        }
        return "";
    } catch (const RequestError& refused) {
        EXPECT_EQ(refused.error().status, 400);
        EXPECT_EQ(refused.error().type, "invalid_request_error");
        return refused.error().param.value_or("-");
    }
}

TEST(OpenaiRequest, SilentRequestGetsTheDefaults) {
    const ChatRequest request = parse_chat(chat_with("user", "somebody"));
    EXPECT_FLOAT_EQ(request.options.sampling.temperature, 1.0F);
    EXPECT_FALSE(request.options.max_tokens.has_value());
    EXPECT_EQ(request.options.num_choices, 1U);
    EXPECT_FALSE(request.options.stream);
    EXPECT_FALSE(request.options.sampling.logprobs);
    EXPECT_NE(request.options.sampling.seed, parse_chat(chat_with("n", 1)).options.sampling.seed);
}

TEST(OpenaiRequest, EveryNumberHasItsRange) {
    const std::vector<std::pair<const char*, std::vector<nlohmann::json>>> bad = {
        {"temperature", {-0.1, 2.1, "hot", true, nlohmann::json::array()}},
        {"top_p", {-0.1, 1.1, "1"}},
        {"top_k", {-2, 1.5, "40"}},
        {"min_p", {-0.1, 1.1}},
        {"repetition_penalty", {0, -1, 11}},
        {"presence_penalty", {-2.1, 2.1}},
        {"frequency_penalty", {-2.1, 2.1}},
        {"seed", {1.5, "1", 18446744073709551615ULL}},
        {"n", {0, -1, 33, 1.5, "1"}},
        {"top_logprobs", {-1, 21, "5"}},
        {"max_tokens", {0, -1, 1.5, "10", true, -1e12}},
        {"max_completion_tokens", {0, -1, "5", nlohmann::json::object()}},
        {"stream", {1, "true"}},
        {"logprobs", {1, "true"}},
        {"stop",
         {1, "", nlohmann::json::array({1}), nlohmann::json::array({""}), std::string(2000, 'x'),
          nlohmann::json(std::vector<std::string>(17, "x"))}},
        {"stream_options", {1, "x", nlohmann::json::array()}},
        {"model", {1, nlohmann::json::array()}},
    };
    for (const auto& [field, values] : bad) {
        for (const auto& value : values) {
            EXPECT_EQ(blamed(chat_with(field, value)), field) << value;
        }
        EXPECT_EQ(blamed(chat_with(field, nullptr)), "") << field << " null counts as absent";
    }
}

TEST(OpenaiRequest, MaxTokensIsClampedAndTheNewerNameWins) {
    EXPECT_EQ(parse_chat(chat_with("max_tokens", 65535)).options.max_tokens, 256U);
    EXPECT_EQ(parse_chat(chat_with("max_tokens", 1e12)).options.max_tokens, 256U);
    EXPECT_EQ(parse_chat(chat_with("max_tokens", 1e300)).options.max_tokens, 256U);
    EXPECT_EQ(parse_chat(chat_with("max_completion_tokens", 5)).options.max_tokens, 5U);
    nlohmann::json both = chat_with("max_tokens", 7);
    both["max_completion_tokens"] = 5;
    EXPECT_EQ(parse_chat(both).options.max_tokens, 5U);
}

TEST(OpenaiRequest, LogitBiasKeysAreTokensOfTheVocabulary) {
    const ChatRequest request = parse_chat(chat_with("logit_bias", {{"999", -100}, {"0", 1.5}}));
    EXPECT_EQ(request.options.sampling.logit_bias.size(), 2U);
    for (const auto& bad : std::vector<nlohmann::json>{{{"1000", 1}},
                                                       {{"-1", 1}},
                                                       {{"abc", 1}},
                                                       {{"", 1}},
                                                       {{"1.5", 1}},
                                                       {{" 1", 1}},
                                                       {{"99999999999999999999", 1}},
                                                       {{"1", 1e9}},
                                                       {{"1", "x"}},
                                                       {{"1", nullptr}},
                                                       nlohmann::json::array({1}),
                                                       5}) {
        EXPECT_EQ(blamed(chat_with("logit_bias", bad)), "logit_bias") << bad;
    }
    nlohmann::json many;
    for (int i = 0; i < 1000; ++i) {
        many[std::to_string(i)] = 1;
        many[std::to_string(i) + "x"] = 1;
    }
    EXPECT_EQ(blamed(chat_with("logit_bias", many)), "logit_bias");
}

TEST(OpenaiRequest, WhatIsNotSupportedYetIsRefusedByName) {
    EXPECT_EQ(blamed(chat_with("response_format", {{"type", "text"}})), "");
    EXPECT_EQ(blamed(chat_with("response_format", {{"type", "json_object"}})), "response_format");
    EXPECT_EQ(blamed(chat_with("response_format", "json")), "response_format");
    const nlohmann::json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
    EXPECT_EQ(blamed(chat_with("tools", nlohmann::json::array({tool}))), "tools");
    EXPECT_EQ(blamed(chat_with("tools", nlohmann::json::array())), "");
    EXPECT_EQ(blamed(chat_with("tool_choice", "none")), "");
    EXPECT_EQ(blamed(chat_with("tool_choice", "auto")), "");
    EXPECT_EQ(blamed(chat_with("tool_choice", "required")), "tool_choice");
    nlohmann::json unused = chat_with("tools", nlohmann::json::array({tool}));
    unused["tool_choice"] = "none";
    EXPECT_EQ(blamed(unused), "");
    unused["tools"][0]["function"]["description"] = nullptr;  // field case crush#3689
    EXPECT_EQ(blamed(unused), "");
}

TEST(OpenaiRequest, ContentPartsAreJoinedForEveryRole) {
    for (const char* role : {"system", "developer", "user", "assistant", "tool"}) {
        const nlohmann::json parts = {{{"type", "text"}, {"text", "A"}},
                                      {{"type", "text"}, {"text", "B"}},
                                      {{"type", "text"}, {"text", "C"}}};
        const nlohmann::json body = {{"messages", {{{"role", role}, {"content", parts}}}}};
        const auto inputs = nlohmann::json::parse(parse_chat(body).template_inputs);
        EXPECT_EQ(inputs["messages"][0]["content"], "A\nB\nC") << role;
    }
}

TEST(OpenaiRequest, BadMessagesAreNamedByIndex) {
    const auto with = [](const nlohmann::json& second) {
        return nlohmann::json{{"messages", {{{"role", "user"}, {"content", "Hi"}}, second}}};
    };
    using J = nlohmann::json;
    EXPECT_EQ(blamed(with(nullptr)), "messages[1]");
    EXPECT_EQ(blamed(with("text")), "messages[1]");
    EXPECT_EQ(blamed(with(J::object())), "messages[1].role");
    EXPECT_EQ(blamed(with({{"role", "robot"}, {"content", "x"}})), "messages[1].role");
    EXPECT_EQ(blamed(with({{"role", 5}, {"content", "x"}})), "messages[1].role");
    EXPECT_EQ(blamed(with({{"role", "user"}})), "messages[1].content");
    EXPECT_EQ(blamed(with({{"role", "user"}, {"content", nullptr}})), "messages[1].content");
    EXPECT_EQ(blamed(with({{"role", "user"}, {"content", 7}})), "messages[1].content");
    EXPECT_EQ(blamed(with({{"role", "user"}, {"content", {5}}})), "messages[1].content[0]");
    const J image = {{"type", "image_url"}, {"image_url", {{"url", "x"}}}};
    EXPECT_EQ(blamed(with({{"role", "user"}, {"content", J::array({image})}})),
              "messages[1].content[0].type");
    const J no_text = {{"type", "text"}};
    EXPECT_EQ(blamed(with({{"role", "user"}, {"content", J::array({no_text})}})),
              "messages[1].content[0].text");
    EXPECT_EQ(blamed({{"messages", J::array()}}), "messages");
    EXPECT_EQ(blamed({{"messages", "Hi"}}), "messages");
    EXPECT_EQ(blamed({{"messages", J::object()}}), "messages");
    EXPECT_EQ(blamed(J::object()), "messages");
}

TEST(OpenaiRequest, PastToolCallsReachTheTemplateAsObjects) {
    const nlohmann::json call = {{"id", nullptr},
                                 {"type", "function"},
                                 {"function", {{"name", "f"}, {"arguments", "{\"x\": 1}"}}}};
    nlohmann::json body = {{"messages", {{{"role", "assistant"}, {"content", nullptr}}}}};
    body["messages"][0]["tool_calls"] = nlohmann::json::array({call});
    const auto inputs = nlohmann::json::parse(parse_chat(body).template_inputs);
    EXPECT_EQ(inputs["messages"][0]["tool_calls"][0]["function"]["arguments"]["x"], 1);
    body["messages"][0]["tool_calls"] = "f";
    EXPECT_EQ(blamed(body), "messages[0].tool_calls");
    body["messages"][0]["tool_calls"] = nlohmann::json::array({5});
    EXPECT_EQ(blamed(body), "messages[0].tool_calls[0]");
    // Deep nesting hidden in a string must not be unpacked.
    body["messages"][0]["tool_calls"] = nlohmann::json::array({call});
    body["messages"][0]["tool_calls"][0]["function"]["arguments"] =
        "{\"x\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
    EXPECT_EQ(blamed(body), "");
}

TEST(OpenaiRequest, CompletionPromptsOfAllKinds) {
    const auto parse = [](const nlohmann::json& prompt) {
        return parse_completion_request(nlohmann::json{{"prompt", prompt}}.dump(), limits());
    };
    EXPECT_EQ(std::get<std::string>(parse("Hi").prompts.at(0)), "Hi");
    EXPECT_EQ(parse({"a", "b"}).prompts.size(), 2U);
    EXPECT_EQ(std::get<std::vector<std::int64_t>>(parse({1, 2, 999}).prompts.at(0)).size(), 3U);
    EXPECT_EQ(parse({{1, 2}, {3}}).prompts.size(), 2U);
    EXPECT_EQ(parse("Hi").options.max_tokens, kDefaultCompletionTokens);
    for (const auto& bad : std::vector<nlohmann::json>{nullptr,
                                                       5,
                                                       nlohmann::json::array(),
                                                       {1, 1000},
                                                       {1, -1},
                                                       {1, 1.5},
                                                       {1, "a"},
                                                       {"a", 1},
                                                       {nlohmann::json::array()},
                                                       nlohmann::json::object(),
                                                       {nullptr}}) {
        EXPECT_EQ(blamed({{"prompt", bad}}, false), "prompt") << bad;
    }
    EXPECT_EQ(blamed({{"prompt", "x"}, {"suffix", "y"}}, false), "suffix");
    EXPECT_EQ(blamed({{"prompt", "x"}, {"best_of", 2}}, false), "best_of");
    EXPECT_EQ(blamed({{"prompt", "x"}, {"best_of", 2}, {"n", 2}}, false), "");
    EXPECT_EQ(blamed({{"prompt", "x"}, {"logprobs", true}}, false), "logprobs");
    EXPECT_EQ(blamed({{"prompt", std::vector<std::string>(33, "x")}, {"n", 2}}, false), "n");
    EXPECT_EQ(blamed({{"prompt", std::vector<std::string>(65, "x")}}, false), "n");
}

TEST(OpenaiRequest, BodiesThatAreNoRequestAreRefused) {
    for (const std::string& body :
         {std::string(), std::string("{"), std::string("[]"), std::string("\xFF\xFE"),
          std::string("null"), std::string("{\"messages\": \"\xFF\"}"),
          std::string("{\"a\":1e999}"), std::string("{\"a\":\"\\ud800\"}"),
          std::string(100000, '['), std::string(1, '\0'),
          "{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}"}) {
        EXPECT_THROW(parse_chat_request(body, limits()), RequestError) << body.substr(0, 20);
        EXPECT_THROW(parse_completion_request(body, limits()), RequestError);
    }
}

TEST(OpenaiRequest, CostlyBodiesAreRefusedQuickly) {
    std::string members = "{";
    for (int i = 0; i < 500000; ++i) {
        members += "\"" + std::to_string(i) + "\":1,";
    }
    members += "\"a\":1}";
    EXPECT_THROW(parse_chat_request(members, limits()), RequestError);
    std::string values = "{\"a\":[";
    for (int i = 0; i < 2000000; ++i) {
        values += "1,";
    }
    EXPECT_THROW(parse_chat_request(values + "1]}", limits()), RequestError);
}

}  // namespace
}  // namespace shardline
