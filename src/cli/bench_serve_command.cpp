#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "cli/bench_report.hpp"
#include "cli/commands.hpp"
#include "cli/coordinator.hpp"
#include "cli/load_run.hpp"
#include "cli/model_argument.hpp"
#include "cli/paced_chain.hpp"
#include "cli/progress.hpp"
#include "cli/trace_file.hpp"
#include "fleet/fleet_plan.hpp"

namespace shardline {

namespace {

constexpr std::uint32_t kLongPrompt = 2000;
constexpr std::uint32_t kCommonTokens = 1000;
constexpr std::uint32_t kOwnTokens = 24;
constexpr std::uint32_t kBenchContext = 4096;
constexpr std::uint32_t kBenchBlocks = 600;  // 64 streams of 250 tokens, or a long one beside them
constexpr double kTail = 0.99;

struct BenchServeArguments {
    FleetArguments fleet;
    std::vector<std::uint32_t> streams = {1, 4, 16, 32};
    std::string prompt_tokens = "32";
    std::string answer_tokens = "64";
    std::string pace;
    double rate = 0.0;
    std::uint32_t requests = 1;
    std::uint32_t rounds = 3;
    bool json = false;
};

// An engine on whatever chain is measured. No prompt comes twice but on purpose, so that a cache
// which one round has filled is no help to the next.
class Bench {
public:
    virtual ~Bench() = default;
    virtual void with_engine(std::uint32_t max_in_flight,
                             const std::function<void(Engine&)>& measure) = 0;
    virtual std::uint32_t depth() const = 0;
    virtual std::uint32_t vocab_size() const = 0;
    virtual bool simulated() const = 0;
};

class RealBench final : public Bench {
public:
    RealBench(FleetArguments arguments, bool quiet) : coordinator_(arguments, quiet) {}

    void with_engine(std::uint32_t /*max_in_flight*/,
                     const std::function<void(Engine&)>& measure) override {
        measure(coordinator_.engine());
    }
    std::uint32_t depth() const override { return coordinator_.chain().max_in_flight(); }
    std::uint32_t vocab_size() const override { return coordinator_.model_info().vocab_size; }
    bool simulated() const override { return false; }

private:
    Coordinator coordinator_;
};

class PacedBench final : public Bench {
public:
    PacedBench(const FleetArguments& arguments, const std::vector<Pace>& paces, bool quiet)
        : trace_(open_trace(arguments.trace)) {
        const std::filesystem::path directory(arguments.model);
        const ModelSource source = ModelSource::open(directory);
        require_checked_model(directory, quiet);
        const FleetOptions options = to_fleet_options(arguments, directory);
        StageSpec common = common_spec(source, options);
        common.num_blocks = options_.num_blocks = kBenchBlocks;
        common.max_rows = options_.max_step_tokens = kLongPrompt;
        options_.max_context = common.max_context;
        options_.vocab_size = source.info().vocab_size;
        depth_ = static_cast<std::uint32_t>(paces.size());
        ProgressLine line(quiet);
        chain_ = std::make_unique<PacedChain>(
            directory, common, source.info().num_layers, paces,
            [&line](const char* phase, double fraction) { line.update(phase, fraction); });
        if (trace_ != nullptr) {
            trace_->record(options_, track_names(paces));
        }
    }

    void with_engine(std::uint32_t max_in_flight,
                     const std::function<void(Engine&)>& measure) override {
        Engine engine(options_);
        engine.start(*chain_);
        chain_->serve(engine, max_in_flight);
        measure(engine);
        engine.stop();
    }
    std::uint32_t depth() const override { return depth_; }
    std::uint32_t vocab_size() const override { return options_.vocab_size; }
    bool simulated() const override { return true; }

private:
    static std::vector<std::string> track_names(const std::vector<Pace>& paces) {
        std::vector<std::string> names;
        for (const Pace& pace : paces) {
            const std::chrono::duration<double, std::milli> first_row = pace.first_row;
            names.push_back(fmt::format("simulated, {} ms", first_row.count()));
        }
        return names;
    }

    const std::unique_ptr<TraceFile> trace_;
    EngineOptions options_;
    std::uint32_t depth_ = 0;
    std::unique_ptr<PacedChain> chain_;
};

// One number of streams, measured in several rounds.
struct StreamsResult {
    std::vector<double> tokens_per_s;
    std::vector<double> busiest_share;  // of the time, of the stage that computed longest
    LoadResult all;                     // samples of all rounds
};

void append(std::vector<double>& all, const std::vector<double>& more) {
    all.insert(all.end(), more.begin(), more.end());
}

double longest_execution_ms(const EngineStats& before, const EngineStats& after) {
    double longest = 0.0;
    for (std::size_t i = 0; i < after.stages.size(); ++i) {
        const double begin = i < before.stages.size() ? before.stages[i].execute_ms : 0.0;
        longest = std::max(longest, after.stages[i].execute_ms - begin);
    }
    return longest;
}

void measure_round(Bench& bench, const Load& load, StreamsResult& result) {
    bench.with_engine(bench.depth(), [&](Engine& engine) {
        const EngineStats before = engine.stats();
        const LoadResult round = run_load(engine, load);
        const double busy_ms = longest_execution_ms(before, engine.stats());
        result.tokens_per_s.push_back(round.tokens_per_s());
        result.busiest_share.push_back(busy_ms / 1000.0 / round.seconds);
        append(result.all.first_token_ms, round.first_token_ms);
        append(result.all.between_tokens_ms, round.between_tokens_ms);
        append(result.all.whole_answer_ms, round.whole_answer_ms);
    });
}

BenchRow row(const Bench& bench, std::string name, double value, std::string unit) {
    return measured(std::move(name), value, std::move(unit), bench.simulated());
}

// Judged against a value measured in the same run, which it may reach `target` times at most.
BenchRow at_most(BenchRow judged, std::string yardstick, double value, double target) {
    judged.yardstick = std::move(yardstick);
    judged.ratio = judged.value / value;
    judged.target = target;
    judged.at_most = true;
    return judged;
}

void add_streams_rows(const Bench& bench, std::uint32_t streams, const StreamsResult& result,
                      double one_stream, std::vector<BenchRow>& rows) {
    const std::string name = fmt::format("{} stream{}", streams, streams == 1 ? "" : "s");
    BenchRow speed = row(bench, name, median(result.tokens_per_s), "tok/s");
    if (streams > 1 && one_stream > 0.0) {
        speed.yardstick = "one stream";
        speed.ratio = speed.value / one_stream;
        // Bounds of three stages of 20, 22 and 20 ms and 0.5 ms a row.
        if (bench.simulated() && (streams == 3 || streams == 24)) {
            speed.target = streams == 3 ? 2.7 : 15.0;
        }
    }
    rows.push_back(speed);
    const LoadResult& all = result.all;
    for (const double share : {0.5, kTail}) {
        const auto add = [&](const char* what, const std::vector<double>& samples) {
            rows.push_back(row(bench, fmt::format("  {}, p{:.0f}", what, share * 100),
                               percentile(samples, share), "ms"));
        };
        add("first token", all.first_token_ms);
        add("between tokens", all.between_tokens_ms);
        add("whole answer", all.whole_answer_ms);
    }
    BenchRow busy = row(bench, "  busiest stage", median(result.busiest_share), "of time");
    if (bench.simulated() && streams == 24) {
        busy.target = 0.95;
    }
    rows.push_back(busy);
}

void measure_streams(Bench& bench, const BenchServeArguments& arguments,
                     std::vector<BenchRow>& rows) {
    Load load;
    load.requests_per_stream = arguments.requests;
    load.prompt_tokens = parse_token_range(arguments.prompt_tokens);
    load.answer_tokens = parse_token_range(arguments.answer_tokens);
    load.vocab_size = bench.vocab_size();
    if (arguments.rate > 0.0) {
        load.requests_per_s = arguments.rate;
    }
    std::vector<StreamsResult> results(arguments.streams.size());
    for (std::uint32_t round = 0; round < arguments.rounds + 1; ++round) {
        if (round == 1) {  // the first was the warm-up
            results.assign(results.size(), {});
        }
        for (std::size_t i = 0; i < results.size(); ++i) {
            load.num_streams = arguments.streams[i];
            load.seed = round * 100 + static_cast<std::uint32_t>(i) + 1;
            measure_round(bench, load, results[i]);
        }
    }
    const auto one = std::find(arguments.streams.begin(), arguments.streams.end(), 1U);
    const double one_stream =
        one == arguments.streams.end()
            ? 0.0
            : median(
                  results[static_cast<std::size_t>(one - arguments.streams.begin())].tokens_per_s);
    for (std::size_t i = 0; i < results.size(); ++i) {
        add_streams_rows(bench, arguments.streams[i], results[i], one_stream, rows);
    }
}

// First token of a long prompt, its chunks following each other through the stages against the
// whole of it in one step.
void measure_long_prompt(Bench& bench, std::uint32_t rounds, std::vector<BenchRow>& rows) {
    std::mt19937 random(7);
    std::vector<double> chunks_ms;
    std::vector<double> whole_ms;
    for (std::uint32_t round = 0; round < rounds; ++round) {
        for (const bool in_chunks : {true, false}) {
            bench.with_engine(in_chunks ? bench.depth() : 1, [&](Engine& engine) {
                // Short ones first, from which the engine learns what rows cost.
                for (const std::uint32_t tokens : {2U, 40U, 80U}) {
                    run_one(engine, random_prompt(tokens, bench.vocab_size(), random), 8);
                }
                auto prompt = random_prompt(kLongPrompt, bench.vocab_size(), random);
                const LoadResult result = run_one(engine, std::move(prompt), 1);
                (in_chunks ? chunks_ms : whole_ms).push_back(result.first_token_ms.front());
            });
        }
    }
    rows.push_back(
        row(bench, fmt::format("first token of {}, whole", kLongPrompt), median(whole_ms), "ms"));
    rows.push_back(at_most(row(bench, fmt::format("first token of {}, in chunks", kLongPrompt),
                               median(chunks_ms), "ms"),
                           "whole", median(whole_ms), 0.5));
}

// What those who are being answered notice of a long prompt that somebody else sends.
void measure_neighbours(Bench& bench, std::vector<BenchRow>& rows) {
    Load load;
    load.num_streams = 3;
    load.prompt_tokens = {32, 32};
    load.vocab_size = bench.vocab_size();
    LoadResult idle;
    LoadResult disturbed;
    bench.with_engine(bench.depth(), [&](Engine& engine) {
        load.answer_tokens = {64, 64};
        run_load(engine, load);
        load.seed = 2;
        idle = run_load(engine, load);
        std::mt19937 random(7);
        std::jthread neighbour([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
            run_one(engine, random_prompt(kLongPrompt, bench.vocab_size(), random), 1);
        });
        load.seed = 3;
        disturbed = run_load(engine, load);
    });
    const double idle_ms = percentile(idle.between_tokens_ms, kTail);
    rows.push_back(row(bench, "between tokens, p99, idle", idle_ms, "ms"));
    rows.push_back(at_most(row(bench, fmt::format("between tokens, p99, beside {}", kLongPrompt),
                               percentile(disturbed.between_tokens_ms, kTail), "ms"),
                           "idle", idle_ms, 2.0));
}

void measure_common_beginning(Bench& bench, std::uint32_t rounds, std::vector<BenchRow>& rows) {
    std::mt19937 random(11);
    std::vector<double> cold_ms;
    std::vector<double> warm_ms;
    for (std::uint32_t round = 0; round < rounds; ++round) {
        bench.with_engine(bench.depth(), [&](Engine& engine) {
            const auto common = random_prompt(kCommonTokens, bench.vocab_size(), random);
            for (std::vector<double>* times : {&cold_ms, &warm_ms}) {
                auto prompt = common;
                const auto own = random_prompt(kOwnTokens, bench.vocab_size(), random);
                prompt.insert(prompt.end(), own.begin(), own.end());
                times->push_back(run_one(engine, std::move(prompt), 1).first_token_ms.front());
            }
        });
    }
    rows.push_back(row(bench, "first token, cold", median(cold_ms), "ms"));
    rows.push_back(at_most(row(bench, fmt::format("first token, {} tokens known", kCommonTokens),
                               median(warm_ms), "ms"),
                           "cold", median(cold_ms), 0.2));
}

int run_bench_serve(BenchServeArguments arguments) {
    const std::filesystem::path directory = resolve_model(arguments.fleet.model, arguments.json);
    arguments.fleet.model = directory.string();
    arguments.fleet.max_sequences = 64;
    if (arguments.fleet.context == 0) {
        const std::uint32_t own = ModelSource::open(directory).info().context_length;
        arguments.fleet.context = own > 0 ? std::min(own, kBenchContext) : kBenchContext;
    }
    std::unique_ptr<Bench> bench;
    if (!arguments.pace.empty()) {
        bench = std::make_unique<PacedBench>(arguments.fleet, parse_paces(arguments.pace),
                                             arguments.json);
        if (!arguments.json) {
            fmt::print("Simulated: stages in this process paced at {}, with real tokens.\n\n",
                       arguments.pace);
        }
    } else {
        bench = std::make_unique<RealBench>(arguments.fleet, arguments.json);
    }
    std::vector<BenchRow> rows;
    measure_streams(*bench, arguments, rows);
    if (arguments.fleet.context > kCommonTokens + kOwnTokens) {
        measure_common_beginning(*bench, arguments.rounds, rows);
    }
    if (bench->simulated() && arguments.fleet.context > kLongPrompt) {
        measure_long_prompt(*bench, arguments.rounds, rows);
        measure_neighbours(*bench, rows);
    }
    print_bench(rows, arguments.json);
    return 0;
}

}  // namespace

Command add_bench_serve_command(CLI::App& bench) {
    auto arguments = std::make_shared<BenchServeArguments>();
    CLI::App* command = bench.add_subcommand(
        "serve", "Many streams at once: throughput, waiting times, what a cached prompt saves");
    command->footer(R"(
Examples
  shardline bench serve demo --local-workers 2
  shardline bench serve demo --streams 16 --requests 4 --prompt-tokens 32..256 --rate 2
  shardline bench serve demo --pace 20ms,22ms,20ms+0.5ms/row --streams 1,3,24   (simulated))");
    add_fleet_options(*command, arguments->fleet);
    add_trace_option(*command, arguments->fleet);
    command->add_option("--streams", arguments->streams, "streams at a time, one run each")
        ->delimiter(',')
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    command->add_option("--requests", arguments->requests, "requests per stream")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    command->add_option("--rate", arguments->rate,
                        "requests a second, arriving at random, instead of a closed loop");
    command->add_option("--prompt-tokens", arguments->prompt_tokens, "N or A..B, evenly drawn")
        ->capture_default_str();
    command->add_option("--tokens", arguments->answer_tokens, "of an answer, N or A..B")
        ->capture_default_str();
    command->add_option("--pace", arguments->pace,
                        "simulate stages that take so long, as 20ms,22ms,20ms+0.5ms/row");
    command->add_option("--rounds", arguments->rounds, "interleaved rounds; medians are printed")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    command->add_flag("--json", arguments->json, "print rows as JSON");
    return {command, [arguments] { return run_bench_serve(*arguments); }};
}

}  // namespace shardline
