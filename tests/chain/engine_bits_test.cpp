// The engine on real stages: what runs beside a request, what it found computed and how often it
// had to give way leave no trace in its tokens.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "chain/stage_chain.hpp"
#include "engine/engine.hpp"
#include "model/model_source.hpp"
#include "stage/numeric_choice.hpp"
#include "stage/stage_loader.hpp"
#include "transport/local_link.hpp"

namespace shardline::stage_test {
namespace {

constexpr std::uint32_t kPoolBlocks = 1 + 14;
constexpr std::uint32_t kContext = 400;

// Two stages of a model on threads of this process, as one link.
class TwoStages final : public StageLink {
public:
    explicit TwoStages(const std::filesystem::path& directory) {
        const std::uint32_t layers = ModelSource::open(directory).info().num_layers;
        ChainOptions options;
        options.numeric = numeric_settings_for(directory);
        options.num_blocks = kPoolBlocks;
        std::vector<std::unique_ptr<StageExecutor>> stages;
        for (const PartRange& range : {PartRange{{0, layers / 2}, true, false},
                                       PartRange{{layers / 2, layers}, false, true}}) {
            stages.push_back(load_stage(directory, make_spec(directory, range, options),
                                        [](const char* /*phase*/, double /*fraction*/) {}));
        }
        chain_ = std::make_unique<LocalChain>(
            std::move(stages), Epoch{1},
            ChainCallbacks{
                .on_result =
                    [this](StepResult result) { engine_.load()->step_done(std::move(result)); },
                .on_down =
                    [this](const std::string& reason) { engine_.load()->chain_down(reason); }});
    }

    void serve(Engine& engine) {
        engine_ = &engine;
        engine.chain_up(Epoch{1});
    }

    bool send(Step step) override { return chain_->send(std::move(step)); }
    void cancel(Epoch /*epoch*/, StepId step) override { chain_->cancel(step); }
    std::uint32_t max_in_flight() const override { return 2; }

private:
    std::atomic<Engine*> engine_ = nullptr;
    std::unique_ptr<LocalChain> chain_;
};

class EngineBits : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        const char* value = std::getenv("SHARDLINE_TINY_MODELS");
        if (value == nullptr || !std::filesystem::exists(value)) {
            GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no directory";
        }
        directory_ = std::filesystem::path(value) / GetParam();
        vocab_size_ = ModelSource::open(directory_).info().vocab_size;
        stages_ = std::make_unique<TwoStages>(directory_);
    }

    Request request(std::uint32_t index) const {
        Request made;
        // Every third begins like the others of its kind.
        made.prompt = random_tokens(index % 3 == 0 ? 70 : 1 + 5 * index, vocab_size_,
                                    index % 3 == 0 ? 99 : index);
        const auto own = random_tokens(1 + index, vocab_size_, 200 + index);
        made.prompt.insert(made.prompt.end(), own.begin(), own.end());
        made.max_tokens = 40 + 5 * index;
        made.sampling.temperature = index % 2 == 0 ? 0.0F : 0.8F;
        made.sampling.seed = index;
        made.handle = std::make_shared<RequestHandle>(made.max_tokens);
        return made;
    }

    // All at once, on a new engine. Each of `leavers` leaves after so many tokens as its index.
    std::vector<std::vector<std::int64_t>> answers(std::vector<Request> requests,
                                                   const std::vector<std::uint32_t>& leavers = {}) {
        EngineOptions options;
        options.num_blocks = kPoolBlocks;
        options.max_context = kContext;
        options.vocab_size = vocab_size_;
        Engine engine(options);
        engine.start(*stages_);
        stages_->serve(engine);
        std::vector<std::shared_ptr<RequestHandle>> handles;
        for (Request& made : requests) {
            handles.push_back(made.handle);
            for (const Fork& fork : made.forks) {
                handles.push_back(fork.handle);
            }
            EXPECT_EQ(engine.submit(std::move(made)), SubmitStatus::kAccepted);
        }
        for (const std::uint32_t leaver : leavers) {
            for (std::uint32_t i = 0; i < leaver; ++i) {
                EXPECT_TRUE(handles[leaver]->events.pop()->token);
            }
            handles[leaver]->cancelled = true;
            engine.cancel_soon();
        }
        std::vector<std::vector<std::int64_t>> texts;
        for (const auto& handle : handles) {
            texts.push_back(answer(*handle));
        }
        stats_ = engine.stats();
        engine.stop();
        return texts;
    }

    std::vector<std::int64_t> answer(RequestHandle& handle) {
        std::vector<std::int64_t> tokens;
        while (const auto event = handle.events.pop()) {
            if (event->token) {
                tokens.push_back(event->token->token);
            }
            if (event->finish) {
                const bool left = event->finish->reason == FinishReason::kCancelled;
                EXPECT_TRUE(left ? handle.cancelled.load()
                                 : event->finish->reason == FinishReason::kLength);
                num_left_ += left ? 1 : 0;
                break;
            }
        }
        return tokens;
    }

    std::filesystem::path directory_;
    std::uint32_t vocab_size_ = 0;
    std::unique_ptr<TwoStages> stages_;
    EngineStats stats_;
    std::uint32_t num_left_ = 0;
};

TEST_P(EngineBits, CompanyCacheAndPreemptionLeaveNoTrace) {
    std::vector<Request> all;
    std::vector<std::vector<std::int64_t>> alone;
    for (std::uint32_t index = 0; index < 16; ++index) {
        all.push_back(request(index));
        alone.push_back(answers({request(index)}).front());
        EXPECT_EQ(stats_.preemptions + stats_.reused_tokens, 0U);
    }
    const auto together = answers(all);
    EXPECT_GT(stats_.preemptions, 0U);
    EXPECT_GT(stats_.reused_tokens, 0U);
    for (std::uint32_t index = 0; index < 16; ++index) {
        EXPECT_EQ(together[index], alone[index]) << "request " << index;
    }
}

// Prompts that end on a block's end and within one.
TEST_P(EngineBits, ForksAreAsAlone) {
    for (const std::size_t prompt_tokens : {64, 75}) {
        Request first = request(4);
        first.prompt = random_tokens(prompt_tokens, vocab_size_, 5);
        first.sampling.temperature = 0.8F;
        const auto with_seed = [&](std::uint64_t seed) {
            Request made = first;
            made.sampling.seed = seed;
            made.handle = std::make_shared<RequestHandle>(made.max_tokens);
            return made;
        };
        std::vector<std::vector<std::int64_t>> alone;
        Request all = with_seed(0);
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
            alone.push_back(answers({with_seed(seed)}).front());
            if (seed > 0) {
                const Request other = with_seed(seed);
                all.forks.push_back({other.sampling, other.handle});
            }
        }
        EXPECT_EQ(answers({all}), alone) << prompt_tokens << " tokens";
        EXPECT_NE(alone[0], alone[1]);
    }
}

// openvinotoolkit/model_server#4428
TEST_P(EngineBits, NeighboursThatLeaveLeaveNoTrace) {
    const std::vector<std::uint32_t> leavers = {1, 4, 7, 10, 13};
    std::vector<Request> all;
    std::vector<std::vector<std::int64_t>> alone;
    for (std::uint32_t index = 0; index < 16; ++index) {
        all.push_back(request(index));
        alone.push_back(answers({request(index)}).front());
    }
    const auto together = answers(all, leavers);
    EXPECT_GT(num_left_, 0U);
    for (std::uint32_t index = 0; index < 16; ++index) {
        if (std::find(leavers.begin(), leavers.end(), index) == leavers.end()) {
            EXPECT_EQ(together[index], alone[index]) << "request " << index;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Tiny, EngineBits,
                         testing::Values("llama-int8", "llama-int4-asym", "qwen3", "gemma2",
                                         "mistral-window"),
                         [](const auto& tested) {
                             std::string name = tested.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace shardline::stage_test
