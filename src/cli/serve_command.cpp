#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/platform.hpp"
#include "cli/commands.hpp"
#include "cli/coordinator.hpp"
#include "server/generation_defaults.hpp"
#include "server/http_server.hpp"
#include "transport/worker_client.hpp"

namespace shardline {

namespace {

struct ServeArguments {
    FleetArguments fleet;
    std::string listen = "127.0.0.1:8000";
    std::vector<std::string> api_keys;
};

ServerOptions server_options(const ServeArguments& arguments) {
    ServerOptions options;
    const HostPort listen = parse_address(arguments.listen);
    options.listen_host = listen.host;
    options.port = listen.port;
    options.api_keys = arguments.api_keys;
    return options;
}

int run_serve(const ServeArguments& arguments) {
    const StopSignal stop;
    ServerOptions options = server_options(arguments);
    options.validate();  // before minutes of loading
    Coordinator coordinator(arguments.fleet, false);
    for (const StageDescription& stage : coordinator.chain().stages()) {
        fmt::print(stderr, "{:<12} {}\n", to_string(stage.spec.range), stage.where);
    }
    options.context_length = coordinator.chain().max_context();
    options.default_sampling = read_generation_defaults(coordinator.model_directory());
    HttpServer server(options, coordinator.engine(), coordinator.tokenizer(),
                      coordinator.chat_template(), coordinator.model_info());
    const int port = server.start();
    const std::string host = arguments.listen.substr(0, arguments.listen.rfind(':'));
    fmt::print("serving {} at http://{}:{}\n", coordinator.model_info().name, host, port);
    std::fflush(stdout);
    stop.wait();
    server.stop();
    return 0;
}

}  // namespace

Command add_serve_command(CLI::App& app) {
    auto arguments = std::make_shared<ServeArguments>();
    CLI::App* command =
        app.add_subcommand("serve", "Offer a model over one OpenAI-compatible endpoint");
    command->footer(R"(
Examples
  shardline serve demo --local-workers 2
  shardline serve model --workers pc1:7411,pc2:7411 --credentials ~/fleet/me
  shardline serve model --listen 0.0.0.0:8000 --api-key "$KEY"
then, with any OpenAI client,
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"messages":[{"role":"user","content":"Hello"}]}')");
    add_fleet_options(*command, arguments->fleet);
    add_trace_option(*command, arguments->fleet);
    command->add_flag("--reuse-answers", arguments->fleet.reuse_answers,
                      "let a prompt that repeats an answer begin with its KV: turns of a "
                      "conversation start sooner, their bits depend on what came before");
    command
        ->add_option("--listen", arguments->listen,
                     "HOST:PORT; port 0 picks a free one; hosts beyond loopback need a key")
        ->capture_default_str();
    command->add_option("--api-key", arguments->api_keys, "key that clients must send; repeatable")
        ->envname("SHARDLINE_API_KEY");
    return {command, [arguments] { return run_serve(*arguments); }};
}

}  // namespace shardline
