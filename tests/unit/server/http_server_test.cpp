#include "server/http_server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.hpp"
#include "unit/server/server_fixture.hpp"

namespace shardline {
namespace {

using Json = nlohmann::json;

class HttpServerTest : public ServerTest {};

TEST_F(HttpServerTest, UnknownPathsMethodsAndModelsAreRefused) {
    expect_error(http(port_, "GET", "/"), 404);
    expect_error(http(port_, "POST", "/v1/embeddings", "{}"), 404);
    expect_error(http(port_, "GET", "/v1/../etc/passwd"), 404);
    const RawResponse wrong = http(port_, "GET", "/v1/chat/completions");
    expect_error(wrong, 405);
    EXPECT_EQ(wrong.headers.at("allow"), "POST");
    expect_error(http(port_, "DELETE", "/v1/models"), 405);
    expect_error(http(port_, "PUT", "/v1/completions", ""), 405);
    Json body = chat_body();
    body["model"] = "gpt-4";
    const RawResponse other = chat(body);
    expect_error(other, 404);
    EXPECT_EQ(other.error()["code"], "model_not_found");
    body.erase("model");
    EXPECT_EQ(chat(body).status, 200);
}

TEST_F(HttpServerTest, BodiesAreBounded) {
    const std::size_t limit = server_options().connections.max_body_bytes;
    RawClient announced(port_);
    announced.send_bytes("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                         std::to_string(limit + 1) + "\r\n\r\n");
    expect_error(announced.read_response(), 413);
    EXPECT_TRUE(announced.closed_by_server(std::chrono::seconds(3)));

    RawClient absurd(port_);
    absurd.send_bytes(
        "POST /v1/completions HTTP/1.1\r\nContent-Length: "
        "99999999999999999999999999\r\n\r\n");
    expect_error(absurd.read_response(), 413);
    RawClient negative(port_);
    negative.send_bytes("POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n");
    expect_error(negative.read_response(), 400);

    RawClient chunked(port_);
    chunked.send_bytes("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = "100000\r\n" + std::string(0x100000, 'x') + "\r\n";
    for (int i = 0; i < 9; ++i) {
        chunked.send_bytes(chunk);
    }
    expect_error(chunked.read_response(), 413);

    expect_error(http(port_, "POST", "/v1/completions", "x", "Content-Encoding: gzip\r\n"), 415);
    RawClient form(port_);
    form.send_bytes(
        "POST /v1/completions HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        "Content-Length: 5\r\n\r\n--b--");
    expect_error(form.read_response(), 415);
    RawClient none(port_);
    none.send_bytes("POST /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_error(none.read_response(), 400);
}

TEST_F(HttpServerTest, ChunkedRequestBodiesAreRead) {
    RawClient client(port_);
    const std::string body = chat_body().dump();
    client.send_bytes("POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (const char c : body) {
        client.send_bytes("1\r\n" + std::string(1, c) + "\r\n");
    }
    client.send_bytes("0\r\n\r\n");
    EXPECT_EQ(client.read_response().json()["choices"][0]["message"]["content"], "Hello!");
}

TEST_F(HttpServerTest, NoiseOnThePortIsRefused) {
    for (const std::string& noise :
         {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03\r\n\r\n", 15),
          std::string("GARBAGE\r\n\r\n"), std::string("GET\r\n\r\n"),
          std::string("GET / HTTP/9.9\r\n\r\n"),
          "GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n",
          "GET / HTTP/1.1\r\nX: " + std::string(100000, 'x')}) {
        RawClient client(port_);
        client.send_bytes(noise);
        const RawResponse response = client.read_response();
        EXPECT_GE(response.status, 400) << noise.substr(0, 20);
        EXPECT_LT(response.status, 500);
        EXPECT_TRUE(client.closed_by_server(std::chrono::seconds(3)));
    }
}

TEST_F(HttpServerTest, OneConnectionServesManyRequestsAlsoSentAtOnce) {
    RawClient client(port_);
    for (int i = 0; i < 20; ++i) {
        client.send_request("POST", "/v1/chat/completions", chat_body().dump());
        EXPECT_EQ(client.read_response().status, 200);
    }
    for (int i = 0; i < 5; ++i) {
        client.send_request("GET", "/v1/models");
        client.send_request("POST", "/v1/chat/completions", chat_body().dump());
    }
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(client.read_response().status, 200);
    }
    Json stream = chat_body();
    stream["stream"] = true;
    client.send_request("POST", "/v1/chat/completions", stream.dump());
    EXPECT_EQ(client.read_response().events().back(), "[DONE]");
    client.send_request("GET", "/health/live");
    EXPECT_EQ(client.read_response().status, 200);
}

TEST_F(HttpServerTest, SlowRequestsArriveByteByByte) {
    RawClient client(port_);
    const std::string body = chat_body().dump();
    const std::string request =
        "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
    for (const char c : request) {
        client.send_bytes(std::string(1, c));
    }
    EXPECT_EQ(client.read_response().status, 200);
}

TEST_F(HttpServerTest, WebPagesOfOtherHostsAreRefusedWithoutAKey) {
    const std::string body = chat_body().dump();
    for (const char* origin : {"https://evil.example", "null", "http://localhost.evil.example",
                               "http://127.0.0.1.evil.example"}) {
        const std::string header = std::string("Origin: ") + origin + "\r\n";
        const RawResponse response = http(port_, "POST", "/v1/chat/completions", body, header);
        expect_error(response, 403);
        EXPECT_EQ(response.headers.count("access-control-allow-origin"), 0U);
        EXPECT_EQ(http(port_, "OPTIONS", "/v1/chat/completions", "", header).status, 403);
    }
    for (const char* origin : {"http://localhost:8080", "http://127.0.0.1", "http://[::1]:3000"}) {
        const RawResponse response = http(port_, "POST", "/v1/chat/completions", body,
                                          std::string("Origin: ") + origin + "\r\n");
        EXPECT_EQ(response.status, 200);
        EXPECT_EQ(response.headers.at("access-control-allow-origin"), origin);
    }
}

TEST_F(HttpServerTest, UsageAndTimingsAddUp) {
    link_->set_scripts({ids_of({"Hello", "!"}), ids_of({"Hello"})});
    Json body = chat_body();
    body["n"] = 2;
    const Json answer = chat(body).json();
    EXPECT_EQ(answer["object"], "chat.completion");
    EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], link_->prompts().back().size());
    EXPECT_EQ(answer["usage"]["total_tokens"].get<int>(),
              answer["usage"]["prompt_tokens"].get<int>() + 3);
    EXPECT_GE(answer["timings"]["prompt_ms"].get<double>(), 0.0);
    EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
    EXPECT_EQ(answer["choices"][1]["message"]["content"], "Hello");
}

TEST_F(HttpServerTest, LogprobsInBothForms) {
    Json body = chat_body();
    body["logprobs"] = true;
    body["top_logprobs"] = 3;
    const Json content = chat(body).json()["choices"][0]["logprobs"]["content"];
    ASSERT_EQ(content.size(), 2U);
    EXPECT_EQ(content[0]["token"], "Hello");
    EXPECT_EQ(content[0]["top_logprobs"].size(), 3U);
    EXPECT_EQ(content[0]["top_logprobs"][0]["token"], "Hello");
    EXPECT_NEAR(content[0]["logprob"].get<double>(), 0.0, 1e-3);
    EXPECT_LT(content[0]["top_logprobs"][1]["logprob"].get<double>(), -50.0);

    const Json legacy =
        completions({{"prompt", "x"}, {"logprobs", 2}}).json()["choices"][0]["logprobs"];
    EXPECT_EQ(legacy["tokens"], Json({"Hello", "!"}));
    EXPECT_EQ(legacy["text_offset"], Json({0, 5}));
    EXPECT_EQ(legacy["token_logprobs"].size(), 2U);
    EXPECT_EQ(legacy["top_logprobs"][0].size(), 2U);
    EXPECT_TRUE(completions({{"prompt", "x"}}).json()["choices"][0]["logprobs"].is_null());
}

TEST_F(HttpServerTest, RecordsOfAStopStringGoWithItsText) {
    link_->set_scripts({ids_of({"a", "\n", "Q", ":", "b"})});
    Json body = chat_body();
    body["stop"] = "\nQ:";
    body["logprobs"] = true;
    const Json choice = chat(body).json()["choices"][0];
    ASSERT_EQ(choice["logprobs"]["content"].size(), 1U);
    EXPECT_EQ(choice["logprobs"]["content"][0]["token"], "a");
}

TEST_F(HttpServerTest, CompletionsOfSeveralPrompts) {
    link_->set_scripts({ids_of({"A"}), ids_of({"B"}), ids_of({"A", "x"}), ids_of({"B", "y"})});
    Json body = {{"prompt", {"one", "two"}}, {"n", 2}, {"max_tokens", 5}};
    const Json answer = completions(body).json();
    EXPECT_EQ(answer["object"], "text_completion");
    ASSERT_EQ(answer["choices"].size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(answer["choices"][i]["index"], i);
    }
    // Each prompt is computed once; its second choice goes on from there.
    EXPECT_EQ(answer["choices"][0]["text"], "A");
    EXPECT_EQ(answer["choices"][1]["text"], "Ax");
    EXPECT_EQ(answer["choices"][2]["text"], "B");
    EXPECT_EQ(answer["choices"][3]["text"], "By");
    EXPECT_EQ(tokenizer().decode(link_->prompts()[0]), "one");
    EXPECT_EQ(tokenizer().decode(link_->prompts()[2]), "two");

    link_->set_scripts({ids_of({"A"})});
    const Json echo = completions({{"prompt", "one"}, {"echo", true}}).json();
    EXPECT_EQ(echo["choices"][0]["text"], "oneA");
    for (const bool echoed : {false, true}) {
        link_->set_scripts({ids_of({"A"})});
        const RawResponse stream =
            completions({{"prompt", "one"}, {"stream", true}, {"echo", echoed}});
        EXPECT_EQ(joined_text(stream.chunks()), echoed ? "oneA" : "A");
        EXPECT_EQ(finish_of(stream.chunks()), "stop");
        EXPECT_EQ(stream.chunks()[0]["object"], "text_completion");
        EXPECT_EQ(stream.events().back(), "[DONE]");
    }
    EXPECT_EQ(completions({{"prompt", ids_of({" a"})}}).status, 200);  // a single token
    expect_error(completions({{"prompt", ""}}), 400);
}

TEST_F(HttpServerTest, HealthTellsLiveFromReady) {
    EXPECT_EQ(http(port_, "GET", "/health/live").status, 200);
    const RawResponse ready = http(port_, "GET", "/health");
    EXPECT_EQ(ready.status, 200);
    EXPECT_EQ(ready.json()["kv_blocks_used"], 0);
    link_->set_hanging(true);
    const RawResponse hung = http(port_, "GET", "/health/ready");
    EXPECT_EQ(hung.status, 503);
    EXPECT_EQ(http(port_, "GET", "/health/live").status, 200);
    link_->set_hanging(false);
    link_->go_down("worker b:7411 left");
    const RawResponse down = http(port_, "GET", "/health/ready");
    EXPECT_EQ(down.status, 503);
    EXPECT_EQ(down.json()["reason"], "worker b:7411 left");
    EXPECT_EQ(http(port_, "GET", "/health/live").status, 200);
    link_->come_up();
    EXPECT_EQ(http(port_, "GET", "/health/ready").status, 200);
}

TEST_F(HttpServerTest, MetricsCountWhatWasServed) {
    link_->set_scripts({counting(10)});
    EXPECT_EQ(chat(chat_body()).status, 200);
    const RawResponse metrics = http(port_, "GET", "/metrics");
    EXPECT_EQ(metrics.status, 200);
    EXPECT_THAT(metrics.body,
                testing::HasSubstr("shardline_time_to_first_token_seconds_count 1\n"));
    EXPECT_THAT(metrics.body, testing::HasSubstr("shardline_requests_running 0\n"));
    EXPECT_THAT(metrics.body, testing::HasSubstr("shardline_chain_up 1\n"));
    EXPECT_EQ(http(port_, "POST", "/metrics").status, 405);
}

TEST_F(HttpServerTest, ChainThatIsDownIs503AndARunningStreamGetsAnErrorEvent) {
    link_->set_step_time(std::chrono::milliseconds(20));
    link_->set_scripts({counting(200)});
    Json body = chat_body();
    body["stream"] = true;
    RawClient client(port_);
    client.send_request("POST", "/v1/chat/completions", body.dump());
    std::thread breaker([this] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        link_->go_down("worker \xFF lost");
    });
    const RawResponse cut = client.read_response();
    breaker.join();
    EXPECT_EQ(cut.status, 200);
    EXPECT_TRUE(cut.complete);
    const auto events = cut.events();
    const Json last = Json::parse(events.back());
    EXPECT_TRUE(last.contains("error")) << last;
    EXPECT_EQ(last["error"]["code"], "chain_down");

    const RawResponse refused = chat(chat_body());
    expect_error(refused, 503);
    EXPECT_TRUE(refused.headers.count("retry-after"));
}

TEST_F(HttpServerTest, FailedStepIsAnErrorAndOnlyOfThoseInIt) {
    link_->fail_next_step("stage 1 (layers 15-30): NaN in row 3");
    const RawResponse response = chat(chat_body());
    expect_error(response, 500);
    EXPECT_NE(response.error()["message"].get<std::string>().find("stage 1"), std::string::npos);
}

TEST_F(HttpServerTest, SilentConnectionsDoNotKeepOthersOut) {
    std::vector<std::unique_ptr<RawClient>> silent;
    for (int i = 0; i < 500; ++i) {
        silent.push_back(std::make_unique<RawClient>(port_));
        if (i % 2 == 0) {
            silent.back()->send_bytes("POST /v1/chat/");
        }
    }
    for (int i = 0; i < 30; ++i) {  // beyond the limit: the idlest go
        EXPECT_EQ(http(port_, "GET", "/health/live").status, 200);
        silent.push_back(std::make_unique<RawClient>(port_));
    }
    EXPECT_EQ(chat(chat_body()).status, 200);
}

TEST_F(HttpServerTest, StopEndsRunningStreamsWithAnErrorEvent) {
    link_->set_step_time(std::chrono::milliseconds(50));
    link_->set_scripts({counting(200)});
    Json body = chat_body();
    body["stream"] = true;
    RawClient client(port_);
    client.send_request("POST", "/v1/chat/completions", body.dump());
    ASSERT_TRUE(client.read_until(" a"));
    const auto begin = std::chrono::steady_clock::now();
    server_->stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    const RawResponse cut = client.read_response();
    EXPECT_TRUE(Json::parse(cut.events().back()).contains("error"));
    EXPECT_THROW(RawClient{port_}, std::runtime_error);
    EXPECT_TRUE(blocks_free_within(kGoneTime));
    server_.reset();  // nothing is left to ask
    engine_->stop();
    link_->stop();
}

TEST_F(HttpServerTest, ListenErrorsNameTheRemedy) {
    ModelInfo model;
    model.vocab_size = tokenizer().vocab_size();
    const auto message_of = [&](const ServerOptions& options) -> std::string {
        try {
            HttpServer server(options, *engine_, tokenizer(), nullptr, model);
            server.start();
            return "";
        } catch (const Error& error) {
            return error.what();
        }
    };
    ServerOptions open = server_options();
    open.listen_host = "0.0.0.0";
    EXPECT_NE(message_of(open).find("--api-key"), std::string::npos);
    open.api_keys = {"secret"};
    EXPECT_EQ(message_of(open), "");
    ServerOptions taken = server_options();
    taken.port = port_;
    EXPECT_NE(message_of(taken).find(std::to_string(port_)), std::string::npos);
    ServerOptions unknown = server_options();
    unknown.listen_host = "no.such.host.invalid";
    EXPECT_NE(message_of(unknown), "");
    ServerOptions empty_key = server_options();
    empty_key.api_keys = {""};
    EXPECT_NE(message_of(empty_key), "");
}

TEST_F(HttpServerTest, WithoutATemplateChatSaysSo) {
    ModelInfo model;
    model.vocab_size = tokenizer().vocab_size();
    HttpServer bare(server_options(), *engine_, tokenizer(), nullptr, model);
    const int port = bare.start();
    const RawResponse response = http(port, "POST", "/v1/chat/completions", chat_body().dump());
    expect_error(response, 400);
    EXPECT_NE(response.error()["message"].get<std::string>().find("chat_template"),
              std::string::npos);
    EXPECT_EQ(http(port, "POST", "/v1/completions", R"({"prompt":"x"})").status, 200);
}

class KeyTest : public ServerTest {
protected:
    ServerOptions server_options() const override {
        ServerOptions options = ServerTest::server_options();
        options.api_keys = {"first-key", "second-key"};
        return options;
    }
    void SetUp() override {
        headers_ = "Authorization: Bearer second-key\r\n";
        ServerTest::SetUp();
    }
};

TEST_F(KeyTest, AllRoutesOfTheApiNeedAKey) {
    for (const char* header : {"", "Authorization: Bearer \r\n", "Authorization: Bearer first\r\n",
                               "Authorization: first-key\r\n", "Authorization: Basic first-key\r\n",
                               "Authorization: Bearer first-key2\r\n"}) {
        expect_error(http(port_, "POST", "/v1/chat/completions", chat_body().dump(), header), 401);
        expect_error(http(port_, "GET", "/v1/models", "", header), 401);
        expect_error(http(port_, "GET", "/v1/unknown", "", header), 401);
    }
    EXPECT_EQ(http(port_, "GET", "/v1/models", "", "Authorization: Bearer first-key\r\n").status,
              200);
    EXPECT_EQ(http(port_, "GET", "/health").status, 200);
    const RawResponse page = http(port_, "POST", "/v1/chat/completions", chat_body().dump(),
                                  headers_ + "Origin: https://chat.example\r\n");
    EXPECT_EQ(page.status, 200);
    EXPECT_EQ(page.headers.at("access-control-allow-origin"), "*");
}

class SmallServerTest : public ServerTest {
protected:
    EngineOptions engine_options() const override {
        EngineOptions options = ServerTest::engine_options();
        options.max_sequences = 1;
        options.max_waiting = 1;
        return options;
    }
    ServerOptions server_options() const override {
        ServerOptions options = ServerTest::server_options();
        options.request_timeout = std::chrono::milliseconds(1500);
        options.connections.max_threads = 3;
        options.connections.max_connections = 40;
        options.connections.header_time = std::chrono::milliseconds(700);
        options.connections.idle_time = std::chrono::milliseconds(700);
        options.connections.body_time = std::chrono::milliseconds(1500);
        options.probe_patience = std::chrono::milliseconds(1500);
        options.connections.write_stall = std::chrono::milliseconds(500);
        return options;
    }
};

TEST_F(SmallServerTest, FullQueueIs429WithRetryAfter) {
    link_->set_step_time(std::chrono::milliseconds(20));
    link_->set_scripts({counting(200)});
    RawClient running(port_);
    running.send_request("POST", "/v1/chat/completions", chat_body().dump());
    RawClient waiting(port_);
    waiting.send_request("POST", "/v1/chat/completions", chat_body().dump());
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const RawResponse refused = chat(chat_body());
    expect_error(refused, 429);
    EXPECT_EQ(refused.headers.at("retry-after"), "1");
    Json many = chat_body();
    many["n"] = 3;  // all or none
    expect_error(chat(many), 429);
    EXPECT_EQ(http(port_, "GET", "/health/ready").status, 200) << "a full queue is no illness";
}

TEST_F(SmallServerTest, RequestsEndInBoundedTimeWhenTheChainHangs) {
    for (const bool stream : {false, true}) {
        link_->set_hanging(true);
        Json body = chat_body();
        body["stream"] = stream;
        const auto begin = std::chrono::steady_clock::now();
        expect_error(chat(body), 504);
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
        EXPECT_EQ(http(port_, "GET", "/health/ready").status, 503);
        link_->set_hanging(false);
        EXPECT_TRUE(blocks_free_within(kGoneTime));
    }
}

TEST_F(SmallServerTest, BusyThreadsStillAnswerHealthAndRefuseTheRest) {
    link_->set_hanging(true);
    std::vector<std::unique_ptr<RawClient>> busy;
    for (int i = 0; i < 3; ++i) {  // bodies that do not come
        busy.push_back(std::make_unique<RawClient>(port_));
        busy.back()->send_bytes("POST /v1/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(http(port_, "GET", "/health/live").status, 200);
    expect_error(chat(chat_body()), 429);
    for (auto& client : busy) {
        expect_error(client->read_response(), 408);
    }
}

TEST_F(SmallServerTest, BeyondTheSpareThreadsTheAnswerIs503AtOnce) {
    constexpr int kSpareThreads = 8;
    link_->set_hanging(true);
    std::vector<std::unique_ptr<RawClient>> busy;
    for (int i = 0; i < 3; ++i) {
        busy.push_back(std::make_unique<RawClient>(port_));
        busy.back()->send_bytes("POST /v1/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n");
    }
    for (int i = 0; i < kSpareThreads; ++i) {  // each waits for a step that does not come
        busy.push_back(std::make_unique<RawClient>(port_));
        busy.back()->send_request("GET", "/health/ready");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const RawResponse refused = http(port_, "GET", "/health/live");
    expect_error(refused, 503);
    EXPECT_EQ(refused.error()["code"], "busy");
    EXPECT_TRUE(refused.complete);
    EXPECT_TRUE(refused.headers.count("retry-after"));
    for (auto& client : busy) {
        EXPECT_GE(client->read_response().status, 400);
    }
    EXPECT_EQ(http(port_, "GET", "/health/live").status, 200);
}

TEST_F(SmallServerTest, SilentConnectionsAreClosedInTime) {
    RawClient silent(port_);
    RawClient half(port_);
    half.send_bytes("GET /health HTTP/1.1\r\nHo");
    RawClient idle(port_);
    idle.send_request("GET", "/health/live");
    EXPECT_EQ(idle.read_response().status, 200);
    EXPECT_TRUE(silent.closed_by_server(std::chrono::seconds(3)));
    EXPECT_TRUE(half.closed_by_server(std::chrono::seconds(3)));
    EXPECT_TRUE(idle.closed_by_server(std::chrono::seconds(3)));
}

TEST_F(SmallServerTest, ClientThatNeverReadsIsDroppedAndHarmsNobody) {
    // Each answer repeats the path: together far more than what socket buffers hold.
    const std::string path = "/" + std::string(7000, 'a');
    constexpr int kRequests = 5000;
    RawClient deaf(port_);
    bool dropped = false;
    for (int i = 0; i < kRequests && !dropped; ++i) {
        dropped = !deaf.send_request("GET", path);
        if (i % 1000 == 0) {
            EXPECT_EQ(http(port_, "GET", "/health/live").status, 200);
            // The thread that has just answered may not have seen its client leave yet.
            int status = chat(chat_body()).status;
            for (int again = 0; again < 100 && status == 429; ++again) {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
                status = chat(chat_body()).status;
            }
            EXPECT_EQ(status, 200);
        }
    }
    EXPECT_TRUE(dropped);
}

}  // namespace
}  // namespace shardline
