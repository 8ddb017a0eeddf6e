#include "server/http_server.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/log.hpp"
#include "server/engine_metrics.hpp"
#include "server/generation_routes.hpp"
#include "server/openai_response.hpp"
#include "server/request_gate.hpp"

namespace shardline {
namespace {

constexpr const char* kJson = "application/json";

// The engine cuts answers to what its KV pool holds, whatever the server believes.
constexpr std::uint32_t kUnknownContextLength = 1U << 20;

Json readiness_json(const Readiness& readiness, const std::string& model,
                    const EngineStats& stats) {
    Json body = {{"status", readiness.ready ? "ok" : "unavailable"}};
    if (!readiness.ready) {
        body["reason"] = readiness.reason;
    }
    body["model"] = model;
    body["running"] = stats.running;
    body["waiting"] = stats.waiting;
    body["kv_blocks_used"] = stats.blocks_used;
    body["kv_blocks_total"] = stats.blocks_total;
    return body;
}

// One household, for IPv6: whoever has an address has a whole /64 of them.
std::string network_of(const std::string& address) {
    in6_addr parsed{};
    if (inet_pton(AF_INET6, address.c_str(), &parsed) != 1 || IN6_IS_ADDR_V4MAPPED(&parsed)) {
        return address;
    }
    return {reinterpret_cast<const char*>(parsed.s6_addr), 8};
}

Caller caller_of(const RequestGate& gate, const httplib::Request& request) {
    const std::uint64_t owner = gate.owner(request).value_or(0);
    const std::string network = network_of(request.remote_addr);
    return {owner, std::hash<std::string>{}(fmt::format("{} {}", owner, network))};
}

}  // namespace

void ServerOptions::validate() const {
    const auto require = [](bool holds, const char* what) {
        if (!holds) {
            throw Error(ErrorCode::kInvalidArgument, what);
        }
    };
    constexpr int kMaxPort = 65535;
    constexpr std::size_t kMinHeaderBytes = 1024;
    require(port >= 0 && port <= kMaxPort, "the HTTP port must be from 0 to 65535");
    require(max_choices >= 1, "the server's limit of choices must be at least 1");
    require(connections.max_threads >= 1, "the server needs at least one thread");
    require(connections.max_connections >= 1, "the server needs at least one connection");
    require(connections.max_header_bytes >= kMinHeaderBytes,
            "the server's header limit must be at least 1024 bytes");
    require(connections.max_body_bytes >= 1, "the server's body limit must be at least one byte");
    for (const std::string& key : api_keys) {
        require(!key.empty(), "an API key must not be empty");
    }
}

struct HttpServer::State {
    State(const ServerOptions& given, Engine& engine_, const Tokenizer& tokenizer,
          const ChatTemplate* chat_template, const ModelInfo& model)
        : options(given),
          engine(engine_),
          probe(engine_, given.probe_patience, given.probe_freshness),
          server(given.connections),
          gate(given),
          routes(options, engine_, tokenizer, chat_template, model, server.stopping()) {}

    void add_model_routes();
    void add_health_routes();
    void add_metrics_route();
    void add_generation_routes();

    const ServerOptions options;
    Engine& engine;
    ChainProbe probe;
    ConnectionServer server;
    RequestGate gate;
    GenerationRoutes routes;
    std::int64_t created_s = 0;
};

void HttpServer::State::add_model_routes() {
    server.Get("/v1/models", [this](const httplib::Request&, httplib::Response& response) {
        response.set_content(to_text(model_list_json(options.model_id, created_s)), kJson);
    });
    server.Get(
        "/v1/models/(.+)", [this](const httplib::Request& request, httplib::Response& response) {
            const std::string id = request.matches[1];
            if (id == options.model_id) {
                response.set_content(to_text(model_json(options.model_id, created_s)), kJson);
            } else {
                write_error(response, unknown_model(id, options.model_id));
            }
        });
}

void HttpServer::State::add_health_routes() {
    server.Get("/health/live", [](const httplib::Request&, httplib::Response& response) {
        response.set_content(to_text({{"status", "ok"}}), kJson);
    });
    const auto ready = [this](const httplib::Request&, httplib::Response& response) {
        const Readiness readiness = probe.check();
        response.status = readiness.ready ? 200 : 503;
        response.set_content(to_text(readiness_json(readiness, options.model_id, engine.stats())),
                             kJson);
    };
    server.Get("/health", ready);
    server.Get("/health/ready", ready);
}

void HttpServer::State::add_metrics_route() {
    server.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
        response.set_content(engine_metrics(engine.stats(), engine.chain_is_up()),
                             "text/plain; version=0.0.4; charset=utf-8");
    });
}

void HttpServer::State::add_generation_routes() {
    using Route =
        void (GenerationRoutes::*)(const std::string&, const Caller&, httplib::Response&) const;
    const auto add = [this](const char* path, Route route) {
        server.Post(path,
                    [this, route](const httplib::Request& request, httplib::Response& response,
                                  const httplib::ContentReader& reader) {
                        if (const auto body = gate.read_body(request, response, reader)) {
                            (routes.*route)(*body, caller_of(gate, request), response);
                        }
                    });
    };
    add("/v1/chat/completions", &GenerationRoutes::chat);
    add("/v1/completions", &GenerationRoutes::completion);
}

HttpServer::HttpServer(const ServerOptions& options, Engine& engine, const Tokenizer& tokenizer,
                       const ChatTemplate* chat_template, const ModelInfo& model) {
    ServerOptions checked = options;
    if (checked.model_id.empty()) {
        checked.model_id = model.name;
    }
    if (checked.context_length == 0) {
        checked.context_length =
            model.context_length > 0 ? model.context_length : kUnknownContextLength;
    }
    checked.validate();
    state_ = std::make_unique<State>(checked, engine, tokenizer, chat_template, model);
    state_->created_s = make_response_head(true, "").created_s;
    state_->gate.attach(state_->server);
    state_->add_model_routes();
    state_->add_health_routes();
    state_->add_metrics_route();
    state_->add_generation_routes();
}

HttpServer::~HttpServer() {
    stop();
}

int HttpServer::start() {
    const ServerOptions& options = state_->options;
    const int port =
        state_->server.start(options.listen_host, options.port, options.api_keys.empty());
    room_logger("server")->info("listening on {}:{}", options.listen_host, port);
    return port;
}

void HttpServer::stop() {
    state_->server.stop_all();
}

Readiness HttpServer::readiness() {
    return state_->probe.check();
}

}  // namespace shardline
