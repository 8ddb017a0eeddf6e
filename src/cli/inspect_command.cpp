#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/model_argument.hpp"
#include "cut/cut.hpp"
#include "model/model_source.hpp"
#include "stage/stage_loader.hpp"

namespace shardline {

namespace {

struct InspectArguments {
    std::string model;
    bool json = false;
};

std::string describe(const CrossingTensor& tensor) {
    return fmt::format("{} {} {}", tensor.name, tensor.type.get_type_name(),
                       tensor.shape.to_string());
}

std::uint64_t kv_bytes_per_token(const ModelSource& source) {
    StageSpec spec;
    spec.fingerprint = source.fingerprint();
    spec.range = {{0, source.info().num_layers}, true, true};
    spec.max_rows = 1;
    return stage_footprint(source.directory(), spec).kv_bytes_per_block / kBlockTokens;
}

nlohmann::json to_json(const ModelSource& source, const LayerMap& map, std::uint64_t kv_bytes) {
    const ModelInfo& info = source.info();
    nlohmann::json boundaries = nlohmann::json::array();
    for (const auto& crossing : map.boundaries) {
        nlohmann::json names = nlohmann::json::array();
        for (const CrossingTensor& tensor : crossing) {
            names.push_back(describe(tensor));
        }
        boundaries.push_back(names);
    }
    return {{"name", info.name},
            {"architecture", info.architecture},
            {"layers", map.num_layers},
            {"hidden_size", info.hidden_size},
            {"vocab_size", info.vocab_size},
            {"context_length", info.context_length},
            {"eos_token_ids", info.eos_token_ids},
            {"weights_bytes", info.weights_bytes},
            {"embedding_bytes", map.embedding_bytes},
            {"head_bytes", map.head_bytes},
            {"shared_bytes", map.shared_bytes},
            {"layer_weights_bytes", map.layer_weights_bytes},
            {"kv_bytes_per_token", kv_bytes},
            {"boundaries", boundaries}};
}

void print_table(const ModelSource& source, const LayerMap& map, std::uint64_t kv_bytes) {
    const ModelInfo& info = source.info();
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    fmt::print("{}  {}  {} layers, hidden {}, vocabulary {}, context {}\n", info.name,
               info.architecture, map.num_layers, info.hidden_size, info.vocab_size,
               info.context_length);
    fmt::print("weights {:.1f} MiB, KV {} bytes per token (u8), end tokens {}\n\n",
               mib(info.weights_bytes), kv_bytes, fmt::join(info.eos_token_ids, " "));
    fmt::print("{:>10}  {:>10}  {}\n", "part", "MiB", "what crosses behind it");
    const auto row = [&](const std::string& part, std::uint64_t bytes, std::size_t boundary) {
        std::string crossing;
        for (const CrossingTensor& tensor : map.boundaries[boundary]) {
            crossing += (crossing.empty() ? "" : ", ") + describe(tensor);
        }
        fmt::print("{:>10}  {:>10.2f}  {}\n", part, mib(bytes), crossing);
    };
    row("embedding", map.embedding_bytes, 0);
    for (std::uint32_t layer = 0; layer < map.num_layers; ++layer) {
        row(fmt::format("layer {}", layer), map.layer_weights_bytes[layer], layer + 1);
    }
    fmt::print("{:>10}  {:>10.2f}  logits{}\n", "head", mib(map.head_bytes),
               map.head_bytes == 0 ? " (weights tied with the embedding)" : "");
}

int run_inspect(const InspectArguments& arguments) {
    const ModelSource source = ModelSource::open(resolve_model(arguments.model, arguments.json));
    const LayerMap map = map_layers(source.read_graph());
    const std::uint64_t kv_bytes = kv_bytes_per_token(source);
    if (arguments.json) {
        fmt::print("{}\n", to_json(source, map, kv_bytes).dump(2));
    } else {
        print_table(source, map, kv_bytes);
    }
    return 0;
}

}  // namespace

Command add_inspect_command(CLI::App& app) {
    auto arguments = std::make_shared<InspectArguments>();
    CLI::App* command =
        app.add_subcommand("inspect", "Show a model's layers and what crosses each boundary");
    command->footer(R"(
Examples
  shardline inspect demo
  shardline inspect model --json | jq .layer_weights_bytes)");
    command->add_option("MODEL", arguments->model, "model directory, .gguf file or `demo`")
        ->required();
    command->add_flag("--json", arguments->json, "print JSON");
    return {command, [arguments] { return run_inspect(*arguments); }};
}

}  // namespace shardline
