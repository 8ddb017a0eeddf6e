#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "cli/commands.hpp"
#include "cli/generation.hpp"
#include "text/chat_prompt.hpp"

namespace shardline {

namespace {

struct GenerateArguments {
    FleetArguments fleet;
    std::string prompt;
    std::uint32_t max_tokens = 256;
    SamplingParams sampling;
    bool raw = false;
    bool json = false;
};

std::vector<std::int64_t> prompt_ids(const Coordinator& coordinator,
                                     const GenerateArguments& arguments) {
    if (arguments.raw) {
        return encode_completion(coordinator.tokenizer(), arguments.prompt);
    }
    if (coordinator.chat_template() == nullptr) {
        throw Error(ErrorCode::kUnsupported, coordinator.chat_refusal() + "; --raw goes without");
    }
    const nlohmann::json inputs = {
        {"messages", {{{"role", "user"}, {"content", arguments.prompt}}}}};
    return encode_chat(coordinator.tokenizer(), *coordinator.chat_template(), inputs.dump(), true);
}

void print_json(const Generation& generation) {
    const std::size_t answer = generation.token_ids.size();
    const double decode_ms = generation.total_ms - generation.first_token_ms;
    const double per_s = answer > 1 ? 1000.0 * static_cast<double>(answer - 1) / decode_ms : 0.0;
    const nlohmann::json out = {{"text", generation.text},
                                {"token_ids", generation.token_ids},
                                {"finish_reason", generation.finish_reason},
                                {"usage",
                                 {{"prompt_tokens", generation.prompt_tokens},
                                  {"completion_tokens", answer},
                                  {"total_tokens", generation.prompt_tokens + answer}}},
                                {"timings",
                                 {{"first_token_ms", generation.first_token_ms},
                                  {"total_ms", generation.total_ms},
                                  {"decode_tokens_per_s", per_s}}}};
    fmt::print("{}\n", out.dump(2));
}

int run_generate(const GenerateArguments& arguments) {
    const StopSignal stop;
    Coordinator coordinator(arguments.fleet, arguments.json);
    arguments.sampling.validate(coordinator.model_info().vocab_size);
    std::vector<std::int64_t> prompt = prompt_ids(coordinator, arguments);
    const std::uint32_t max_tokens =
        fitting_max_tokens(coordinator, prompt.size(), arguments.max_tokens);
    const Generation generation = generate(
        coordinator, std::move(prompt), {.sampling = arguments.sampling, .max_tokens = max_tokens},
        [&](const std::string& piece) {
            if (!arguments.json) {
                std::fwrite(piece.data(), 1, piece.size(), stdout);
                std::fflush(stdout);
            }
        },
        [&] { return stop.wait_for(std::chrono::milliseconds(0)); });
    if (arguments.json) {
        print_json(generation);
    } else {
        fmt::print("\n");
    }
    return 0;
}

}  // namespace

Command add_generate_command(CLI::App& app) {
    auto arguments = std::make_shared<GenerateArguments>();
    CLI::App* command = app.add_subcommand("generate", "Answer one prompt and exit");
    command->footer(R"(
Examples
  shardline generate demo --prompt "Name three rivers."
  shardline generate model --local-workers 2 --prompt "Hi" --temperature 0.8 --seed 7
  shardline generate model.gguf --raw --prompt "def fib(n):" --max-tokens 64 --json)");
    add_fleet_options(*command, arguments->fleet);
    add_trace_option(*command, arguments->fleet);
    command->add_option("--prompt", arguments->prompt, "what to answer")->required();
    command->add_option("--max-tokens", arguments->max_tokens, "longest answer")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command->add_option("--temperature", arguments->sampling.temperature, "0: always the likeliest")
        ->capture_default_str();
    command->add_option("--top-p", arguments->sampling.top_p, "keep the likeliest p of the mass")
        ->capture_default_str();
    command->add_option("--top-k", arguments->sampling.top_k, "keep the k likeliest; 0: all")
        ->capture_default_str();
    command->add_option("--seed", arguments->sampling.seed, "same seed, same answer")
        ->capture_default_str();
    command->add_flag("--raw", arguments->raw, "continue the text, without the chat template");
    command->add_flag("--json", arguments->json,
                      "print {text, token_ids, finish_reason, usage, timings}");
    return {command, [arguments] { return run_generate(*arguments); }};
}

}  // namespace shardline
