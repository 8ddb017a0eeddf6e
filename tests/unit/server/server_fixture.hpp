#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.hpp"
#include "server/http_server.hpp"
#include "unit/server/raw_client.hpp"
#include "unit/server/scripted_link.hpp"

namespace shardline {

using TestJson = nlohmann::json;

// How long a request whose client left may hold its blocks; sanitizers make everything slower.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr std::chrono::milliseconds kGoneTime{10000};
#else
inline constexpr std::chrono::milliseconds kGoneTime{1000};
#endif

// SmolLM2's tokenizer and a template in ChatML's style, opened once for all tests.
struct TestWords {
    Tokenizer tokenizer;
    ChatTemplate chat_template;
    std::unordered_map<std::string, std::int64_t> id_by_bytes;
};

// A real server over real sockets, a real engine, a scripted chain. After every test a plain
// request must succeed and all KV blocks must be free again.
class ServerTest : public ::testing::Test {
protected:
    static constexpr std::uint32_t kContext = 256;

    void SetUp() override;
    void TearDown() override;

    // Before start(): what the test wants otherwise.
    virtual ServerOptions server_options() const;
    virtual EngineOptions engine_options() const;

    const Tokenizer& tokenizer() const { return words_->tokenizer; }
    std::int64_t id_of(const std::string& bytes) const;  // the token that stands for these bytes
    std::vector<std::int64_t> ids_of(const std::vector<std::string>& tokens) const;
    std::int64_t eos() const { return eos_; }

    // "a b c ..." of n tokens, then the end.
    std::vector<std::int64_t> counting(std::size_t num_tokens) const;

    static TestJson chat_body(const std::string& text = "Hi");
    RawResponse chat(const TestJson& body) const;
    RawResponse completions(const TestJson& body) const;
    RawResponse post(const std::string& path, const std::string& body) const;
    bool blocks_free_within(std::chrono::milliseconds time) const;
    void expect_plain_request_works();
    static void expect_error(const RawResponse& response, int status);

    static TestWords* words_;  // one load for all tests
    std::int64_t eos_ = 0;
    int port_ = 0;
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<ScriptedLink> link_;
    std::unique_ptr<HttpServer> server_;
    std::string headers_;  // of the closing plain request: a key
};

// Texts of one choice's deltas, joined.
std::string joined_text(const std::vector<TestJson>& chunks, int index = 0);
std::string finish_of(const std::vector<TestJson>& chunks, int index = 0);
bool is_utf8(const std::string& text);

}  // namespace shardline
