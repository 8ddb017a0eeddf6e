#include "unit/server/server_fixture.hpp"

#include <cstdlib>
#include <filesystem>
#include <thread>

namespace shardline {
namespace {

constexpr const char* kTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}";

TestWords* open_words() {
    const char* directory = std::getenv("SHARDLINE_SMOLLM2");
    if (directory == nullptr ||
        !std::filesystem::exists(std::filesystem::path(directory) / "openvino_tokenizer.xml")) {
        return nullptr;
    }
    Tokenizer tokenizer = Tokenizer::open(directory);
    auto* words = new TestWords{
        std::move(tokenizer), ChatTemplate::parse(kTemplate, "<|im_start|>", "<|im_end|>"), {}};
    for (std::int64_t id = 0; id < words->tokenizer.vocab_size(); ++id) {
        words->id_by_bytes.emplace(words->tokenizer.token_bytes(id), id);
    }
    return words;
}

}  // namespace

TestWords* ServerTest::words_ = nullptr;

ServerOptions ServerTest::server_options() const {
    ServerOptions options;
    options.port = 0;
    options.model_id = "smol";
    options.context_length = kContext;
    options.default_sampling.temperature = 1.0F;
    options.probe_patience = std::chrono::milliseconds(500);
    options.probe_freshness = std::chrono::milliseconds(0);
    return options;
}

EngineOptions ServerTest::engine_options() const {
    EngineOptions options;
    options.num_blocks = 129;
    options.max_context = kContext;
    options.vocab_size = tokenizer().vocab_size();
    return options;
}

void ServerTest::SetUp() {
    if (words_ == nullptr) {
        words_ = open_words();
    }
    if (words_ == nullptr) {
        GTEST_SKIP() << "SHARDLINE_SMOLLM2 names no imported SmolLM2 with a tokenizer";
    }
    eos_ = id_of("<|im_end|>");
    link_ = std::make_unique<ScriptedLink>(tokenizer().vocab_size(), eos_);
    link_->set_scripts({ids_of({"Hello", "!"})});
    engine_ = std::make_unique<Engine>(engine_options());
    engine_->start(*link_);
    link_->start(*engine_);
    ModelInfo model;
    model.name = "smol";
    model.vocab_size = tokenizer().vocab_size();
    model.context_length = kContext;
    model.eos_token_ids = {eos_};
    server_ = std::make_unique<HttpServer>(server_options(), *engine_, tokenizer(),
                                           &words_->chat_template, model);
    port_ = server_->start();
}

void ServerTest::TearDown() {
    if (server_ == nullptr) {
        return;
    }
    link_->set_hanging(false);
    link_->set_step_time(std::chrono::milliseconds(0));
    if (!engine_->chain_is_up()) {
        link_->come_up();
    }
    expect_plain_request_works();
    EXPECT_TRUE(blocks_free_within(kGoneTime));
    server_->stop();
    engine_->stop();
    link_->stop();
}

std::int64_t ServerTest::id_of(const std::string& bytes) const {
    const auto found = words_->id_by_bytes.find(bytes);
    if (found == words_->id_by_bytes.end()) {
        ADD_FAILURE() << "no token stands for these bytes: " << bytes;
        return 0;
    }
    return found->second;
}

std::vector<std::int64_t> ServerTest::ids_of(const std::vector<std::string>& tokens) const {
    std::vector<std::int64_t> ids;
    for (const std::string& token : tokens) {
        ids.push_back(id_of(token));
    }
    return ids;
}

std::vector<std::int64_t> ServerTest::counting(std::size_t num_tokens) const {
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; i < num_tokens; ++i) {
        ids.push_back(id_of(std::string(" ") + static_cast<char>('a' + i % 26)));
    }
    return ids;
}

TestJson ServerTest::chat_body(const std::string& text) {
    return {{"model", "smol"}, {"messages", {{{"role", "user"}, {"content", text}}}}};
}

RawResponse ServerTest::post(const std::string& path, const std::string& body) const {
    return http(port_, "POST", path, body, headers_);
}

RawResponse ServerTest::chat(const TestJson& body) const {
    return post("/v1/chat/completions", body.dump());
}

RawResponse ServerTest::completions(const TestJson& body) const {
    return post("/v1/completions", body.dump());
}

bool ServerTest::blocks_free_within(std::chrono::milliseconds time) const {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (engine_->stats().blocks_used != 0) {
        if (std::chrono::steady_clock::now() > deadline) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

void ServerTest::expect_plain_request_works() {
    link_->set_scripts({ids_of({"Hello", "!"})});
    RawResponse response;
    for (int i = 0; i < 50 && response.status != 200; ++i) {
        response = chat(chat_body());  // a chain that just came up, or a queue that just emptied
        if (response.status != 200) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    }
    ASSERT_EQ(response.status, 200) << response.body;
    const TestJson choice = response.json()["choices"][0];
    EXPECT_EQ(choice["message"]["content"], "Hello!");
    EXPECT_EQ(choice["finish_reason"], "stop");
}

void ServerTest::expect_error(const RawResponse& response, int status) {
    ASSERT_EQ(response.status, status) << response.body;
    EXPECT_TRUE(is_utf8(response.body));
    const TestJson error = response.error();
    EXPECT_TRUE(error.at("message").is_string());
    EXPECT_FALSE(error["message"].get<std::string>().empty());
    EXPECT_TRUE(error.at("type").is_string());
    EXPECT_TRUE(error.contains("param"));
    EXPECT_TRUE(error.contains("code"));
}

std::string joined_text(const std::vector<TestJson>& chunks, int index) {
    std::string text;
    for (const TestJson& chunk : chunks) {
        for (const TestJson& choice : chunk["choices"]) {
            if (choice["index"] == index) {
                text += choice.contains("delta") ? choice["delta"].value("content", "")
                                                 : choice.value("text", "");
            }
        }
    }
    return text;
}

std::string finish_of(const std::vector<TestJson>& chunks, int index) {
    std::string finish;
    for (const TestJson& chunk : chunks) {
        for (const TestJson& choice : chunk["choices"]) {
            if (choice["index"] == index && !choice["finish_reason"].is_null()) {
                EXPECT_TRUE(finish.empty()) << "two finish reasons";
                finish = choice["finish_reason"];
            }
        }
    }
    return finish;
}

bool is_utf8(const std::string& text) {
    try {
        static_cast<void>(TestJson(text).dump());
        return true;
    } catch (const TestJson::type_error&) {
        return false;
    }
}

}  // namespace shardline
