#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/model_argument.hpp"
#include "model/model_source.hpp"

namespace shardline {

namespace {

struct ImportArguments {
    std::string source;
    std::string directory;
    bool json = false;
};

int run_import(const ImportArguments& arguments) {
    import_model(arguments.source, arguments.directory, arguments.json);
    const ModelInfo info = ModelSource::open(arguments.directory).info();
    if (arguments.json) {
        fmt::print("{}\n", nlohmann::json{{"directory", arguments.directory},
                                          {"name", info.name},
                                          {"architecture", info.architecture},
                                          {"layers", info.num_layers},
                                          {"weights_bytes", info.weights_bytes}}
                               .dump(2));
    } else {
        fmt::print("{} ({}, {} layers, {:.0f} MiB of weights) is in {}\n", info.name,
                   info.architecture, info.num_layers,
                   static_cast<double>(info.weights_bytes) / (1 << 20), arguments.directory);
    }
    return 0;
}

}  // namespace

Command add_import_command(CLI::App& app) {
    auto arguments = std::make_shared<ImportArguments>();
    CLI::App* command =
        app.add_subcommand("import", "Turn a GGUF file into an OpenVINO model directory");
    command->footer(R"(
Examples
  shardline import SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2
The quantisation of the file is kept, the tokenizer and chat template come along, and the result
is checked: paged attention must agree with the stateful graph on a probe prompt.)");
    command->add_option("FILE", arguments->source, ".gguf file")->required();
    command->add_option("-o,--output", arguments->directory, "model directory to write")
        ->required();
    command->add_flag("--json", arguments->json, "print what was imported as JSON");
    return {command, [arguments] { return run_import(*arguments); }};
}

}  // namespace shardline
