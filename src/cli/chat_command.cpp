#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "cli/commands.hpp"
#include "cli/generation.hpp"
#include "text/chat_prompt.hpp"

namespace shardline {

namespace {

struct ChatArguments {
    FleetArguments fleet;
    std::string system;
    std::uint32_t max_tokens = 512;
    SamplingParams sampling;
};

void print_piece(const std::string& piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
}

nlohmann::json first_messages(const ChatArguments& arguments) {
    nlohmann::json messages = nlohmann::json::array();
    if (!arguments.system.empty()) {
        messages.push_back({{"role", "system"}, {"content", arguments.system}});
    }
    return messages;
}

void answer(Coordinator& coordinator, const ChatArguments& arguments, nlohmann::json& messages,
            const StopSignal& stop) {
    std::vector<std::int64_t> prompt =
        encode_chat(coordinator.tokenizer(), *coordinator.chat_template(),
                    nlohmann::json{{"messages", messages}}.dump(), true);
    const std::uint32_t max_tokens =
        fitting_max_tokens(coordinator, prompt.size(), arguments.max_tokens);
    const Generation generation = generate(
        coordinator, std::move(prompt), {.sampling = arguments.sampling, .max_tokens = max_tokens},
        print_piece, [&] { return stop.wait_for(std::chrono::milliseconds(0)); });
    messages.push_back({{"role", "assistant"}, {"content", generation.text}});
    fmt::print("\n");
}

int run_chat(const ChatArguments& arguments) {
    const StopSignal stop;
    Coordinator coordinator(arguments.fleet, false);
    arguments.sampling.validate(coordinator.model_info().vocab_size);
    if (coordinator.chat_template() == nullptr) {
        throw Error(ErrorCode::kUnsupported, coordinator.chat_refusal());
    }
    nlohmann::json messages = first_messages(arguments);
    fmt::print("{} is ready. /new starts over, /quit or Ctrl-D ends, Ctrl-C stops an answer.\n",
               coordinator.model_info().name);
    std::string line;
    while (fmt::print("> "), std::fflush(stdout), std::getline(std::cin, line)) {
        if (line == "/quit") {
            break;
        }
        if (line == "/new") {
            messages = first_messages(arguments);
            continue;
        }
        if (line.empty()) {
            continue;
        }
        messages.push_back({{"role", "user"}, {"content", line}});
        try {
            answer(coordinator, arguments, messages, stop);
        } catch (const Error& error) {
            // One failed turn (too long, a worker lost) must not cost the conversation.
            messages.erase(messages.size() - 1);
            fmt::print(stderr, "shardline: {}\n", error.what());
        }
    }
    return 0;
}

}  // namespace

Command add_chat_command(CLI::App& app) {
    auto arguments = std::make_shared<ChatArguments>();
    CLI::App* command = app.add_subcommand("chat", "Talk to a model in the terminal");
    command->footer(R"(
Examples
  shardline chat demo --local-workers 2
  shardline chat model --workers pc1:7411,pc2:7411 --credentials ~/fleet/me)");
    add_fleet_options(*command, arguments->fleet);
    command->add_option("--system", arguments->system, "system message");
    command->add_option("--max-tokens", arguments->max_tokens, "longest answer")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    arguments->sampling.temperature = 0.7F;
    command->add_option("--temperature", arguments->sampling.temperature, "0: always the likeliest")
        ->capture_default_str();
    command->add_option("--seed", arguments->sampling.seed, "same seed, same answers")
        ->capture_default_str();
    return {command, [arguments] { return run_chat(*arguments); }};
}

}  // namespace shardline
