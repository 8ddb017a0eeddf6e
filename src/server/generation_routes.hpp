#pragma once

#include <httplib.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "model/model_info.hpp"
#include "server/completion_run.hpp"
#include "server/openai_request.hpp"
#include "server/openai_response.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace shardline {

struct ServerOptions;

// The two endpoints that generate: body in, response or stream out. Called on the thread of the
// connection, which then waits for the engine and watches the client.
class GenerationRoutes final {
public:
    GenerationRoutes(const ServerOptions& options, Engine& engine, const Tokenizer& tokenizer,
                     const ChatTemplate* chat_template, const ModelInfo& model,
                     const std::atomic<bool>& stopping);

    // Throw RequestError or Error, which the gate turns into the response.
    void chat(const std::string& body, const Caller& caller, httplib::Response& response) const;
    void completion(const std::string& body, const Caller& caller,
                    httplib::Response& response) const;

private:
    struct Job;  // one request on its way

    void check_model(const std::string& asked) const;
    void check_length(std::size_t num_tokens) const;
    RunSpec make_spec(const GenerationOptions& options, const Caller& caller) const;
    void run(const std::shared_ptr<Job>& job, httplib::Response& response) const;
    void respond(Job& job, httplib::Response& response) const;
    void stream(const std::shared_ptr<Job>& job, httplib::Response& response) const;
    std::optional<ApiError> reason_to_stop(const Job& job) const;

    const ServerOptions& options_;
    Engine& engine_;
    const Tokenizer& tokenizer_;
    const ChatTemplate* const chat_template_;
    const ModelInfo model_;
    RequestLimits limits_;
    const std::atomic<bool>& stopping_;
};

}  // namespace shardline
