#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "model/model_info.hpp"
#include "sampling/sampling_params.hpp"
#include "server/chain_probe.hpp"
#include "server/connection_server.hpp"
#include "server/generation_defaults.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace shardline {

struct ServerOptions {
    std::string listen_host = "127.0.0.1";
    int port = 8000;                    // 0: any free one
    std::vector<std::string> api_keys;  // none: loopback only, and web pages of loopback only
    std::string model_id;               // empty: ModelInfo's name
    std::uint32_t context_length = 0;   // tokens, prompt and answer; 0: what the model says
    std::uint32_t max_choices = 64;     // prompts times n of one request
    SamplingParams default_sampling = openai_defaults();  // see read_generation_defaults()
    std::chrono::milliseconds request_timeout{1800000};   // of one request, queue included
    std::chrono::milliseconds probe_patience{5000};       // readiness: how long a step may take
    std::chrono::milliseconds probe_freshness{1000};      // readiness: so long no new probe
    ConnectionLimits connections;

    void validate() const;
};

// The OpenAI-compatible endpoint over one engine.
//
//   POST /v1/chat/completions, /v1/completions     GET /v1/models, /v1/models/{id}
//   GET  /health/live   200 while the process runs
//   GET  /health/ready  200 when a step has come through the whole chain lately, else 503;
//        /health        the same
//
// start() and stop() from one thread; each request is served on a thread of its own, which
// parses, renders, tokenizes, then waits for the engine's events. The engine, the tokenizer and
// the template must outlive stop().
class HttpServer final {
public:
    // `chat_template` may be null: chat requests are then refused with the reason.
    HttpServer(const ServerOptions& options, Engine& engine, const Tokenizer& tokenizer,
               const ChatTemplate* chat_template, const ModelInfo& model);
    ~HttpServer();

    // The bound port. Throws Error when it cannot listen, or would listen beyond loopback without
    // a key.
    int start();
    // Running answers end with an error event; returns when all threads are gone. Idempotent.
    void stop();

    // What /health/ready says.
    Readiness readiness();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace shardline
