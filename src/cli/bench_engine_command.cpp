#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "cli/bench_report.hpp"
#include "cli/commands.hpp"
#include "cli/instant_chain.hpp"
#include "cli/load_run.hpp"
#include "cli/submission.hpp"
#include "engine/engine.hpp"

namespace shardline {

namespace {

constexpr std::uint32_t kStages = 3;  // steps in flight
constexpr std::uint32_t kPromptTokens = 32;
constexpr std::uint32_t kAnswerTokens = 128;
constexpr std::uint32_t kSmallVocabulary = 1024;
constexpr std::uint32_t kLargeVocabulary = 49152;
constexpr double kTokensPerSecond = 20'000.0;  // the target, at 64 streams

struct BenchEngineArguments {
    std::uint32_t rounds = 5;
    bool json = false;
};

// What the engine did for so many streams, in all rounds.
struct Side {
    std::uint32_t streams = 0;
    std::uint32_t vocab_size = 0;
    std::vector<double> tokens_per_s{};  // prompt and answer, as scheduled
    std::vector<double> step_us{};       // of the engine's thread
};

void wait_for_end(RequestHandle& handle) {
    while (const auto event = handle.events.pop()) {
        if (event->finish) {
            throw_if_failed(*event->finish);
            return;
        }
    }
}

// The engine must not send to a chain that is gone, nor the chain answer an engine that is: the one
// stops, then the other goes, also when a request failed.
struct EngineOnChain {
    Engine engine;
    InstantChain chain;

    explicit EngineOnChain(const EngineOptions& options)
        : engine(options), chain(options.vocab_size, kStages) {
        engine.start(chain);
        chain.serve(engine);
    }
    ~EngineOnChain() { engine.stop(); }
    EngineOnChain(const EngineOnChain&) = delete;
    EngineOnChain& operator=(const EngineOnChain&) = delete;
};

void measure(Side& side, std::mt19937& random) {
    EngineOptions options;
    options.max_context = kPromptTokens + kAnswerTokens;
    options.vocab_size = side.vocab_size;
    options.max_sequences = side.streams;
    options.num_blocks = 1 + side.streams * (kPromptTokens + kAnswerTokens) / kBlockTokens;
    EngineOnChain running(options);
    Engine& engine = running.engine;
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::shared_ptr<RequestHandle>> handles;
    for (std::uint32_t i = 0; i < side.streams; ++i) {
        Request request;
        request.client = i;  // a client may not take the whole line
        request.prompt = random_prompt(kPromptTokens, side.vocab_size, random);
        request.max_tokens = kAnswerTokens;
        request.handle = std::make_shared<RequestHandle>(kAnswerTokens);
        handles.push_back(request.handle);
        submit_or_throw(engine, std::move(request));
    }
    for (const auto& handle : handles) {
        wait_for_end(*handle);
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    engine.stop();
    const double tokens = side.streams * (kPromptTokens + kAnswerTokens - 1.0);
    side.tokens_per_s.push_back(tokens / seconds);
    side.step_us.push_back(engine.stats().schedule_ms_per_step * 1000.0);
}

BenchRow row(std::string name, double value, std::string unit) {
    return measured(std::move(name), value, std::move(unit), true);
}

std::vector<BenchRow> rows_of(const std::vector<Side>& sides) {
    std::vector<BenchRow> rows;
    const Side* smaller = nullptr;
    for (const Side& side : sides) {
        const std::string name = fmt::format("{} stream{}, {} words", side.streams,
                                             side.streams == 1 ? "" : "s", side.vocab_size);
        rows.push_back(row(name, median(side.tokens_per_s), "tok/s"));
        if (side.streams == 64) {
            rows.back().target = kTokensPerSecond;
        }
        rows.push_back(row("  own work a step", median(side.step_us), "us"));
        // Linear: twice the streams cost twice as much at most, noise apart.
        if (smaller != nullptr && smaller->vocab_size == side.vocab_size && side.streams > 64) {
            rows.back().yardstick = fmt::format("{} streams", smaller->streams);
            rows.back().ratio = rows.back().value / median(smaller->step_us);
            rows.back().target = static_cast<double>(side.streams) / smaller->streams;
            rows.back().at_most = true;
        }
        smaller = &side;
    }
    return rows;
}

int run_bench_engine(const BenchEngineArguments& arguments) {
    std::vector<Side> sides;
    for (const std::uint32_t streams : {1U, 16U, 64U, 128U, 256U}) {
        sides.push_back({.streams = streams, .vocab_size = kSmallVocabulary});
    }
    sides.push_back({.streams = 64, .vocab_size = kLargeVocabulary});
    std::mt19937 random(1);
    for (std::uint32_t round = 0; round < arguments.rounds + 1; ++round) {
        for (Side& side : sides) {
            measure(side, random);
            if (round == 0) {  // the warm-up
                side.tokens_per_s.clear();
                side.step_us.clear();
            }
        }
    }
    if (!arguments.json) {
        fmt::print("Simulated: {} stages that answer at once; {} tokens in, {} out.\n\n", kStages,
                   kPromptTokens, kAnswerTokens);
    }
    print_bench(rows_of(sides), arguments.json);
    return 0;
}

}  // namespace

Command add_bench_engine_command(CLI::App& bench) {
    auto arguments = std::make_shared<BenchEngineArguments>();
    CLI::App* command = bench.add_subcommand(
        "engine", "The engine alone: tokens it schedules a second, cost of a step by streams");
    command->add_option("--rounds", arguments->rounds, "interleaved rounds; medians are printed")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    command->add_flag("--json", arguments->json, "print rows as JSON");
    return {command, [arguments] { return run_bench_engine(*arguments); }};
}

}  // namespace shardline
