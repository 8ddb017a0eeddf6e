// Public fault reports about OpenAI-style servers as trials; each names its report.

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "unit/server/server_fixture.hpp"

namespace shardline {
namespace {

using Json = nlohmann::json;
using FieldCases = ServerTest;

std::string bytes_of(const Json& token) {
    std::string bytes;
    for (const Json& byte : token["bytes"]) {
        bytes.push_back(static_cast<char>(byte.get<int>()));
    }
    return bytes;
}

Json streamed(Json body) {
    body["stream"] = true;
    return body;
}

// abetlen/llama-cpp-python#372
TEST_F(FieldCases, CharacterOfSeveralTokensIsNeverSplit) {
    const std::vector<std::string> pieces = {"\xF0\x9F", "\x91", "\x8D", " ok"};
    const std::string expected = "\xF0\x9F\x91\x8D ok";
    for (const bool logprobs : {false, true}) {
        link_->set_scripts({ids_of(pieces)});
        Json body = chat_body();
        body["logprobs"] = logprobs;
        const RawResponse response = chat(streamed(body));
        ASSERT_EQ(response.status, 200);
        std::vector<std::string> token_bytes;
        for (const Json& chunk : response.chunks()) {
            const Json& choice = chunk["choices"][0];
            const std::string text = choice["delta"].value("content", "");
            EXPECT_TRUE(is_utf8(text));
            EXPECT_EQ(text.find("\xEF\xBF\xBD"), std::string::npos);
            if (choice["logprobs"].is_object()) {
                for (const Json& token : choice["logprobs"]["content"]) {
                    token_bytes.push_back(bytes_of(token));
                }
            }
        }
        EXPECT_EQ(joined_text(response.chunks()), expected);
        EXPECT_EQ(token_bytes, logprobs ? pieces : std::vector<std::string>{});
        link_->set_scripts({ids_of(pieces)});
        EXPECT_EQ(chat(body).json()["choices"][0]["message"]["content"], expected);
    }
}

// ggml-org/llama.cpp#11738
TEST_F(FieldCases, InvalidUtf8BecomesReplacementCharacters) {
    Json body = chat_body();
    body["temperature"] = 1.5;
    link_->set_scripts({ids_of({"a", "\x80", "b"})});
    const RawResponse lone = chat(body);
    ASSERT_EQ(lone.status, 200);
    EXPECT_EQ(lone.json()["choices"][0]["message"]["content"],
              "a\xEF\xBF\xBD"
              "b");
    // Ends inside a character of three bytes.
    body["max_tokens"] = 2;
    for (const bool stream : {false, true}) {
        link_->set_scripts({ids_of({"a", "\xE2", "\x82"})});
        const RawResponse cut = chat(stream ? streamed(body) : body);
        ASSERT_EQ(cut.status, 200);
        if (stream) {
            EXPECT_EQ(joined_text(cut.chunks()), "a\xEF\xBF\xBD");
            EXPECT_EQ(finish_of(cut.chunks()), "length");
        } else {
            EXPECT_EQ(cut.json()["choices"][0]["message"]["content"], "a\xEF\xBF\xBD");
            EXPECT_EQ(cut.json()["choices"][0]["finish_reason"], "length");
        }
    }
}

// Atomic-Germ/OpenFlowLM-Next#69
TEST_F(FieldCases, MalformedBodiesAreRefused) {
    for (const std::string body :
         {"", "{", "[]", "\xFF\xFE", "{\"messages\":{}}", "{\"messages\":\"\xFF\xFE\"}",
          "{\"messages\":\"Hi\"}", "{\"messages\":[]}", "{\"messages\":[null]}",
          "{\"messages\":[{\"role\":\"\\u0000\",\"content\":\"x\"}]}"}) {
        expect_error(post("/v1/chat/completions", body), 400);
        expect_error(post("/v1/completions", body), 400);
    }
}

// SharpAI/SwiftLM#126
TEST_F(FieldCases, StopStringAcrossChunksNeverShowsItsBeginning) {
    Json body = chat_body();
    body["stop"] = {"\nQ:"};
    link_->set_scripts({ids_of({"a", "\n", "Q", ":", "b"})});
    const RawResponse stopped = chat(streamed(body));
    EXPECT_EQ(joined_text(stopped.chunks()), "a");
    EXPECT_EQ(finish_of(stopped.chunks()), "stop");
    EXPECT_EQ(stopped.events().back(), "[DONE]");

    link_->set_scripts({ids_of({"a", "\n", "Q", "x"})});
    const RawResponse false_start = chat(streamed(body));
    EXPECT_EQ(joined_text(false_start.chunks()), "a\nQx");
    EXPECT_EQ(finish_of(false_start.chunks()), "stop");  // end of text

    link_->set_scripts({ids_of({"a", "\n", "Q", ":", "b"})});
    const Json whole = chat(body).json();
    EXPECT_EQ(whole["choices"][0]["message"]["content"], "a");
    EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
}

TEST_F(FieldCases, StopStringEndsTheWork) {
    link_->set_step_time(std::chrono::milliseconds(5));
    link_->set_scripts({counting(200)});
    Json body = chat_body();
    body["stop"] = " c";
    EXPECT_EQ(chat(body).json()["choices"][0]["message"]["content"], " a b");
    EXPECT_TRUE(blocks_free_within(kGoneTime));
    EXPECT_LT(link_->num_steps(), 20U);
}

// openvinotoolkit/model_server#4181, Neroued/ninfer#56
TEST_F(FieldCases, AllTextPartsReachTheModelInOrder) {
    const auto part = [](const char* text) { return Json{{"type", "text"}, {"text", text}}; };
    const Json messages = {
        {{"role", "system"}, {"content", {part("S1"), part("S2")}}},
        {{"role", "user"}, {"content", {part("partA"), part("partB"), part("partC")}}},
        {{"role", "tool"}, {"content", Json::array({part("T1")})}}};
    ASSERT_EQ(chat({{"messages", messages}}).status, 200);
    const std::string prompt = tokenizer().decode(link_->prompts().back(), false);
    std::size_t at = 0;
    for (const char* text : {"S1", "S2", "partA", "partB", "partC", "T1"}) {
        at = prompt.find(text, at);
        ASSERT_NE(at, std::string::npos) << text << " in " << prompt;
    }
}

// charmbracelet/crush#3689, sigoden/aichat#1296, langchain4j/langchain4j#1958
TEST_F(FieldCases, AssistantTurnWithoutContentIsAnEmptyTurn) {
    for (const Json& turn :
         {Json{{"role", "assistant"}, {"content", nullptr}},
          Json{{"role", "assistant"}, {"content", ""}}, Json{{"role", "assistant"}}}) {
        Json body = chat_body();
        body["messages"].push_back(turn);
        body["messages"].push_back({{"role", "user"}, {"content", "Go on"}});
        const RawResponse response = chat(body);
        EXPECT_EQ(response.status, 200) << response.body;
    }
    Json body = chat_body();
    body["messages"].push_back({{"role", "assistant"},
                                {"content", nullptr},
                                {"tool_calls",
                                 {{{"id", nullptr},
                                   {"type", "function"},
                                   {"function", {{"name", "f"}, {"arguments", "{}"}}}}}}});
    body["tools"] = {
        {{"type", "function"}, {"function", {{"name", "f"}, {"description", nullptr}}}}};
    body["tool_choice"] = "none";
    EXPECT_EQ(chat(body).status, 200);
}

// ggml-org/llama.cpp#20226
TEST_F(FieldCases, EveryChoiceOfAStreamHasItsOwnIndex) {
    // Drawn from the same row of the prompt, the first token is everybody's.
    link_->set_scripts({ids_of({"A"}), ids_of({"A", "B", "B"}), ids_of({"A", "C"})});
    Json body = chat_body();
    body["n"] = 3;
    const RawResponse response = chat(streamed(body));
    const std::vector<Json> chunks = response.chunks();
    for (int index = 0; index < 3; ++index) {
        const std::string text = joined_text(chunks, index);
        EXPECT_EQ(text, std::vector<std::string>({"A", "ABB", "AC"})[static_cast<size_t>(index)]);
        EXPECT_EQ(finish_of(chunks, index), "stop");
        int roles = 0;
        bool ended = false;
        for (const Json& chunk : chunks) {
            if (chunk["choices"][0]["index"] == index) {
                roles += chunk["choices"][0]["delta"].contains("role") ? 1 : 0;
                EXPECT_FALSE(ended) << "a piece behind the end";
                ended = !chunk["choices"][0]["finish_reason"].is_null();
            }
        }
        EXPECT_EQ(roles, 1);
    }
    const auto events = response.events();
    EXPECT_EQ(std::count(events.begin(), events.end(), "[DONE]"), 1);
    EXPECT_EQ(events.back(), "[DONE]");
}

// vllm-project/vllm#36379, #7262
TEST_F(FieldCases, UsageIsSentOnlyWhenAskedFor) {
    const std::vector<std::pair<Json, bool>> forms = {{Json(), false},
                                                      {Json::object(), false},
                                                      {Json{{"include_usage", false}}, false},
                                                      {Json{{"include_usage", true}}, true}};
    for (const auto& [form, wanted] : forms) {
        Json body = streamed(chat_body());
        body["stream_options"] = form;
        link_->set_scripts({ids_of({"Hello", "!"})});
        const RawResponse response = chat(body);
        std::vector<Json> with_usage;
        for (const Json& chunk : response.chunks()) {
            if (chunk.contains("usage")) {
                with_usage.push_back(chunk);
            }
        }
        ASSERT_EQ(with_usage.size(), wanted ? 1U : 0U) << form;
        EXPECT_EQ(response.events().back(), "[DONE]");
        if (wanted) {
            EXPECT_EQ(with_usage[0]["choices"], Json::array());
            EXPECT_EQ(with_usage[0], response.chunks().back());
            EXPECT_EQ(with_usage[0]["usage"]["completion_tokens"], 2);
        }
    }
    Json absent = streamed(chat_body());
    for (const Json& chunk : chat(absent).chunks()) {
        EXPECT_FALSE(chunk.contains("usage"));
    }
}

// vllm-project/vllm#42474, ikawrakow/ik_llama.cpp#2321
TEST_F(FieldCases, LargeMaxTokensIsClampedToTheContext) {
    std::vector<std::int64_t> prompt(100, id_of(" a"));
    for (const Json& max_tokens : {Json(65535), Json(1e12)}) {
        link_->set_scripts({counting(300)});
        const Json answer = completions({{"prompt", prompt}, {"max_tokens", max_tokens}}).json();
        EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
        EXPECT_EQ(answer["usage"]["completion_tokens"], kContext - 100);
    }
    link_->set_scripts({counting(300)});
    Json body = chat_body();
    body["max_completion_tokens"] = 5;
    EXPECT_EQ(chat(body).json()["usage"]["completion_tokens"], 5);
    body["max_tokens"] = 7;
    link_->set_scripts({counting(300)});
    EXPECT_EQ(chat(body).json()["usage"]["completion_tokens"], 5);
    for (const char* name : {"max_tokens", "max_completion_tokens"}) {
        for (const Json& bad : {Json(0), Json(-1), Json("10"), Json(1.5)}) {
            Json refused = chat_body();
            refused[name] = bad;
            const RawResponse response = chat(refused);
            expect_error(response, 400);
            EXPECT_EQ(response.error()["param"], name);
        }
    }
}

// ollama/ollama#4967
TEST_F(FieldCases, OverLongPromptIsRefusedWithBothNumbers) {
    for (const std::uint32_t size : {kContext, kContext + 1, 4 * kContext}) {
        const std::vector<std::int64_t> prompt(size, id_of(" a"));
        const RawResponse response = completions({{"prompt", prompt}});
        expect_error(response, 400);
        EXPECT_EQ(response.error()["code"], "context_length_exceeded");
        const std::string message = response.error()["message"];
        EXPECT_NE(message.find(std::to_string(kContext)), std::string::npos) << message;
        EXPECT_NE(message.find(std::to_string(size)), std::string::npos) << message;
    }
    std::string text = "The secret is 42.";
    for (std::uint32_t i = 0; i < 2 * kContext; ++i) {
        text += " a";
    }
    const RawResponse response = chat(chat_body(text));
    expect_error(response, 400);
    EXPECT_EQ(response.error()["code"], "context_length_exceeded");
    const std::vector<std::int64_t> fits(kContext - 1, id_of(" a"));
    link_->set_scripts({counting(5)});
    const Json answer = completions({{"prompt", fits}}).json();
    EXPECT_EQ(answer["usage"]["completion_tokens"], 1);
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
}

// ggml-org/llama.cpp#24496
TEST_F(FieldCases, WorkEndsWhenTheClientLeaves) {
    link_->set_step_time(std::chrono::milliseconds(20));
    for (const bool reset : {false, true}) {
        link_->set_scripts({counting(250)});
        RawClient streaming(port_);
        streaming.send_request("POST", "/v1/chat/completions", streamed(chat_body()).dump());
        ASSERT_TRUE(streaming.read_until(" c"));
        reset ? streaming.reset() : streaming.close();
        EXPECT_TRUE(blocks_free_within(kGoneTime));

        link_->set_scripts({counting(250)});
        RawClient waiting(port_);
        waiting.send_request("POST", "/v1/chat/completions", chat_body().dump());
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        EXPECT_GT(engine_->stats().blocks_used, 0U);
        reset ? waiting.reset() : waiting.close();
        EXPECT_TRUE(blocks_free_within(kGoneTime));
    }
    // During the prompt: steps that take longer than the client's patience.
    for (const bool stream : {false, true}) {
        link_->set_step_time(std::chrono::milliseconds(300));
        RawClient client(port_);
        client.send_request("POST", "/v1/chat/completions",
                            stream ? streamed(chat_body()).dump() : chat_body().dump());
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        client.close();
        EXPECT_TRUE(blocks_free_within(kGoneTime));
    }
}

// exo-explore/exo#175, #716
TEST_F(FieldCases, StreamAndModelListAreAsClientsExpect) {
    const RawResponse models = http(port_, "GET", "/v1/models");
    EXPECT_EQ(models.json()["object"], "list");
    EXPECT_EQ(models.json()["data"][0]["id"], "smol");
    EXPECT_EQ(http(port_, "GET", "/v1/models/smol").json()["object"], "model");
    expect_error(http(port_, "GET", "/v1/models/other"), 404);

    const RawResponse response = chat(streamed(chat_body()));
    EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
    EXPECT_TRUE(response.complete);
    const std::vector<Json> chunks = response.chunks();
    EXPECT_EQ(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    for (const Json& chunk : chunks) {
        EXPECT_EQ(chunk["object"], "chat.completion.chunk");
        EXPECT_EQ(chunk["id"], chunks[0]["id"]);
        EXPECT_FALSE(chunk["choices"][0].contains("message"));
    }
    EXPECT_EQ(joined_text(chunks), "Hello!");  // and no end-of-turn text
    EXPECT_EQ(finish_of(chunks), "stop");
    EXPECT_EQ(response.events().back(), "[DONE]");

    const RawResponse preflight =
        http(port_, "OPTIONS", "/v1/chat/completions", "",
             "Origin: http://localhost:3000\r\nAccess-Control-Request-Method: POST\r\n"
             "Access-Control-Request-Headers: authorization,content-type\r\n");
    EXPECT_EQ(preflight.status, 204);
    EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "http://localhost:3000");
    EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization,content-type");
    EXPECT_NE(preflight.headers.at("access-control-allow-methods").find("POST"), std::string::npos);
}

// vllm-project/vllm#16529
TEST_F(FieldCases, BadLogitBiasHarmsNobodyElse) {
    link_->set_step_time(std::chrono::milliseconds(5));
    link_->set_scripts({counting(100)});
    std::vector<std::future<RawResponse>> streams;
    for (int i = 0; i < 4; ++i) {
        streams.push_back(
            std::async(std::launch::async, [this] { return chat(streamed(chat_body())); }));
    }
    for (const Json& bias :
         {Json{{"999999", 1}}, Json{{"-1", 1}}, Json{{"abc", 1}}, Json{{"1", 1e9}}}) {
        Json body = chat_body();
        body["logit_bias"] = bias;
        const RawResponse response = chat(body);
        expect_error(response, 400);
        EXPECT_EQ(response.error()["param"], "logit_bias");
    }
    const std::string expected = tokenizer().decode(counting(100));
    for (auto& stream : streams) {
        EXPECT_EQ(joined_text(stream.get().chunks()), expected);
    }
}

// openvinotoolkit/model_server#4503
TEST_F(FieldCases, ManyStreamsCutAtOnceLeaveNothingBehind) {
    link_->set_step_time(std::chrono::milliseconds(2));
    for (int round = 0; round < 20; ++round) {
        link_->set_scripts({counting(200)});
        std::vector<std::unique_ptr<RawClient>> clients;
        for (int i = 0; i < 50; ++i) {
            clients.push_back(std::make_unique<RawClient>(port_));
            clients.back()->send_request("POST", "/v1/chat/completions",
                                         streamed(chat_body()).dump());
        }
        ASSERT_TRUE(clients.front()->read_until("data: ", std::chrono::seconds(60)))
            << clients.front()->received();
        clients.clear();
        EXPECT_TRUE(blocks_free_within(10 * kGoneTime));
        EXPECT_EQ(http(port_, "GET", "/health/ready").status, 200);
    }
}

// openvinotoolkit/model_server#4503: as behind a proxy that keeps its sockets open and never reads
// (a client whose buffers are full: SmallServerTest.ClientThatNeverReadsIsDroppedAndHarmsNobody)
TEST_F(FieldCases, StreamsThatNobodyReadsHoldNothingUp) {
    link_->set_scripts({counting(100)});
    std::vector<std::unique_ptr<RawClient>> deaf;
    for (int i = 0; i < 50; ++i) {
        deaf.push_back(std::make_unique<RawClient>(port_));
        deaf.back()->send_request("POST", "/v1/chat/completions", streamed(chat_body()).dump());
    }
    EXPECT_EQ(http(port_, "GET", "/health/ready").status, 200);
    expect_plain_request_works();
    EXPECT_TRUE(blocks_free_within(20 * kGoneTime));
}

// The pool holds 128 tokens, the context twice as many.
class SmallPool : public ServerTest {
protected:
    EngineOptions engine_options() const override {
        EngineOptions options = ServerTest::engine_options();
        options.num_blocks = 1 + 4;
        return options;
    }

    Json ask(std::size_t prompt_tokens, int max_tokens, bool stream = false) const {
        return {{"prompt", std::vector<std::int64_t>(prompt_tokens, id_of(" a"))},
                {"max_tokens", max_tokens},
                {"stream", stream}};
    }

    // Text and reason to end; never an empty success.
    void expect_answer(const RawResponse& response, std::size_t num_tokens) const {
        ASSERT_EQ(response.status, 200) << response.body;
        EXPECT_TRUE(response.complete);
        const std::string expected = tokenizer().decode(counting(num_tokens));
        const bool stream = response.headers.at("content-type") == "text/event-stream";
        if (stream) {
            EXPECT_EQ(joined_text(response.chunks()), expected);
            EXPECT_EQ(finish_of(response.chunks()), "length");
        } else {
            EXPECT_EQ(response.json()["choices"][0]["text"], expected);
            EXPECT_EQ(response.json()["choices"][0]["finish_reason"], "length");
        }
    }
};

// openvinotoolkit/openvino.genai#4047
TEST_F(SmallPool, LongPromptIsAnsweredOrRefusedNeverEmpty) {
    link_->set_scripts({counting(200)});
    for (const bool stream : {false, true}) {
        expect_answer(completions(ask(128, 50, stream)), 1);  // exactly the pool
        expect_answer(completions(ask(127, 50, stream)), 2);
        for (const std::size_t size : {129U, 200U}) {
            const RawResponse refused = completions(ask(size, 1, stream));
            expect_error(refused, 400);
            EXPECT_EQ(refused.error()["code"], "context_length_exceeded");
            const std::string message = refused.error()["message"];
            EXPECT_NE(message.find(std::to_string(size) + " tokens"), std::string::npos) << message;
            EXPECT_NE(message.find("129"), std::string::npos) << message;
        }
        // Bigger than what is free: it waits until the one before it ends.
        link_->set_step_time(std::chrono::milliseconds(5));
        auto running =
            std::async(std::launch::async, [&] { return completions(ask(40, 40, !stream)); });
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
        expect_answer(completions(ask(120, 5, stream)), 5);
        expect_answer(running.get(), 40);
        link_->set_step_time(std::chrono::milliseconds(0));
    }
}

// Avarok-Cybersecurity/atlas#375
TEST_F(SmallPool, SixRequestsWithRoomForOneAndAHalf) {
    link_->set_scripts({counting(200)});
    std::vector<std::future<RawResponse>> answers;
    for (int i = 0; i < 6; ++i) {
        answers.push_back(std::async(std::launch::async, [&, i] {
            return completions(ask(static_cast<std::size_t>(31 + i), 50, i % 2 == 0));
        }));
    }
    for (auto& answer : answers) {
        expect_answer(answer.get(), 50);
    }
}

// ggml-org/llama.cpp#28526
TEST_F(FieldCases, TheSamePromptAgainIsTheSameAnswer) {
    link_->set_scripts({counting(9)});
    for (const std::size_t size : {1U, 31U, 32U, 33U, 34U, 64U, 65U}) {
        for (int time = 0; time < 3; ++time) {
            const Json answer =
                completions({{"prompt", std::vector<std::int64_t>(size, id_of(" b"))}}).json();
            EXPECT_EQ(answer["choices"][0]["text"], tokenizer().decode(counting(9))) << size;
            EXPECT_EQ(answer["usage"]["completion_tokens"], 9);
            EXPECT_EQ(answer["usage"]["prompt_tokens"], size);
        }
    }
}

}  // namespace
}  // namespace shardline
