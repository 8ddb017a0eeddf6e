// Over real sockets with mutual TLS the bits are those of the unsplit model: workers in 1, 2, 3
// and 5 stages between the coordinator's own embedding and head.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/bounded_queue.hpp"
#include "chain/stage_chain.hpp"
#include "fleet/chain_run.hpp"
#include "model/model_source.hpp"
#include "stage/stage_loader.hpp"
#include "transport/worker_server.hpp"

namespace shardline::stage_test {
namespace {

constexpr std::uint32_t kPromptTokens = 200;
constexpr std::uint32_t kGeneratedTokens = 64;
constexpr std::uint32_t kTableBlocks = 10;
constexpr int kValidDays = 1;

void no_progress(const char* /*phase*/, double /*fraction*/) {}

// A coordinator's chain over workers that listen in this process.
class WorkerChain final {
public:
    WorkerChain(const std::filesystem::path& directory, std::uint32_t num_workers)
        : fleet_(make_fleet(kValidDays)) {
        const std::uint32_t num_layers = ModelSource::open(directory).info().num_layers;
        first_ = load_stage(directory, make_spec(directory, {{0, 0}, true, false}), no_progress);
        last_ = load_stage(directory, make_spec(directory, {{num_layers, num_layers}, false, true}),
                           no_progress);
        ChainParts parts{.first = first_.get(),
                         .last = last_.get(),
                         .hops = {},
                         .model_directory = directory,
                         .credentials = make_node_credentials(fleet_, "coordinator", kValidDays),
                         .identity = make_coordinator_identity()};
        for (std::uint32_t i = 0; i < num_workers; ++i) {
            StageSpec spec = make_spec(
                directory,
                {{num_layers * i / num_workers, num_layers * (i + 1) / num_workers}, false, false});
            spec.keeps_rows = i + 1 == num_workers;
            parts.hops.push_back({start_worker(directory, i), spec});
        }
        run_ = std::make_unique<ChainRun>(
            Epoch{1}, parts, [](std::size_t, const std::string&, double) {},
            ChainCallbacks{
                .on_result = [this](StepResult result) { results_.push(std::move(result)); },
                .on_down = [](const std::string& reason) { ADD_FAILURE() << reason; }});
    }

    // One step, all its rows kept.
    LogitRows run(const std::vector<TokenSpan>& spans) {
        Step step;
        step.plan = make_plan(spans, {});
        step.plan.epoch = Epoch{1};
        step.plan.step = StepId{++steps_};
        for (std::uint32_t row = 0; row < num_rows(step.plan); ++row) {
            step.plan.kept_rows.push_back(row);
        }
        step.activations = make_token_ids(spans);
        EXPECT_TRUE(run_->send(std::move(step), 1));
        const auto result = results_.pop_for(std::chrono::seconds(60));
        if (!result.has_value() || result->status != StepStatus::kDone) {
            ADD_FAILURE() << (result.has_value() ? result->error : "no result came");
            return {};
        }
        return rows_of(result->outputs.at(0));
    }

private:
    std::string start_worker(const std::filesystem::path& directory, std::uint32_t index) {
        WorkerOptions options;
        options.listen = "127.0.0.1:0";
        options.name = "worker-" + std::to_string(index);
        options.credentials = make_node_credentials(fleet_, options.name, kValidDays);
        options.model_directory = directory;
        workers_.push_back(std::make_unique<WorkerServer>(
            options, [](const StageSpec& spec, const std::filesystem::path& model_directory,
                        const LoadProgress& progress) {
                return load_stage(model_directory, spec, progress);
            }));
        return "127.0.0.1:" + std::to_string(workers_.back()->port());
    }

    static LogitRows rows_of(const Tensor& logits) {
        const auto num_rows = static_cast<std::size_t>(logits.shape.front());
        const std::size_t row_bytes = logits.bytes.size() / num_rows;
        LogitRows rows(num_rows, std::vector<float>(row_bytes / sizeof(float)));
        for (std::size_t i = 0; i < num_rows; ++i) {
            std::memcpy(rows[i].data(), logits.bytes.data() + i * row_bytes, row_bytes);
        }
        return rows;
    }

    const Fleet fleet_;
    BoundedQueue<StepResult> results_{4};
    std::unique_ptr<StageExecutor> first_;
    std::unique_ptr<StageExecutor> last_;
    std::vector<std::unique_ptr<WorkerServer>> workers_;
    std::unique_ptr<ChainRun> run_;
    std::uint64_t steps_ = 0;
};

struct GrpcCase {
    const char* name;
    const char* variable;  // environment: where the model directory is
};

void PrintTo(const GrpcCase& model, std::ostream* out) {
    *out << model.name;
}

class GrpcBits : public testing::TestWithParam<GrpcCase> {};

TEST_P(GrpcBits, WorkersEqualUnsplit) {
    const char* value = std::getenv(GetParam().variable);
    if (value == nullptr || !std::filesystem::exists(value)) {
        GTEST_SKIP() << GetParam().variable << " names no directory";
    }
    const std::filesystem::path directory(value);
    const std::vector<BlockId> table = blocks_from(1, kTableBlocks);
    const std::vector<std::int64_t> prompt =
        random_tokens(kPromptTokens, ModelSource::open(directory).info().vocab_size, 1);

    StageChain unsplit = StageChain::unsplit(directory, {});
    const LogitRows expected_prompt = unsplit.prefill(prompt, table, {200}, kPromptTokens);
    std::vector<std::int64_t> fed = {argmax(expected_prompt.back())};
    LogitRows expected;
    for (std::uint32_t i = 0; i < kGeneratedTokens; ++i) {
        expected.push_back(unsplit.decode(fed.back(), kPromptTokens + i, table));
        fed.push_back(argmax(expected.back()));
    }

    for (const std::uint32_t num_workers : {1U, 2U, 3U, 5U}) {
        SCOPED_TRACE(std::to_string(num_workers) + " workers");
        WorkerChain chain(directory, num_workers);
        ASSERT_TRUE(same_bits(expected_prompt, chain.run({{prompt, 0, table}})));
        for (std::uint32_t i = 0; i < kGeneratedTokens; ++i) {
            const LogitRows rows = chain.run({{{fed[i]}, kPromptTokens + i, table}});
            ASSERT_EQ(rows.size(), 1U);
            ASSERT_TRUE(same_bits(expected[i], rows.front())) << "generated token " << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, GrpcBits,
                         testing::Values(GrpcCase{"smollm2", "SHARDLINE_SMOLLM2"},
                                         GrpcCase{"smollm2_genai", "SHARDLINE_SMOLLM2_GENAI"}),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Slow, GrpcBits, testing::Values(GrpcCase{"qwen", "SHARDLINE_QWEN_05B"}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace shardline::stage_test
