#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>

#include "engine_rig.hpp"

namespace shardline {
namespace {

// Streams of different lengths that join and leave at every step, each with a prompt of its own:
// each must get what it would get alone, whatever runs beside it.
TEST(EngineSoak, ParallelStreamsKeepTheirSecrets) {
    for (std::uint32_t num_streams : {8U, 16U, 32U}) {
        ToyChainOptions chain;
        chain.max_in_flight = 1 + num_streams % 5;
        chain.num_stages = chain.max_in_flight;
        chain.num_blocks = 60;
        chain.seed = num_streams;
        EngineOptions options;
        options.max_step_tokens = 24;
        EngineRig rig(options, chain);
        std::vector<std::future<void>> streams;
        for (std::uint32_t stream = 0; stream < num_streams; ++stream) {
            streams.push_back(std::async(std::launch::async, [&rig, stream] {
                std::mt19937 generator(stream);
                for (unsigned i = 0; i < 12; ++i) {
                    Request request = toy_request(1 + dice(generator, 40), 1 + dice(generator, 40),
                                                  1000 * stream + i);
                    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
                    request.sampling.seed = generator();
                    if (i % 3 == 0) {
                        request.stop_tokens = {static_cast<std::int64_t>(dice(generator, 20))};
                    }
                    EXPECT_EQ(rig.ask(request).tokens, rig.expected(request));
                }
            }));
        }
        for (auto& stream : streams) {
            stream.get();
        }
        rig.expect_idle();
    }
}

// What the soak's clients do: ask, sometimes hang up, sometimes with a queue that is full.
void be_a_client(EngineRig& rig, unsigned seed, const std::atomic<bool>& over,
                 std::atomic<int>& num_complete) {
    std::mt19937 generator(seed);
    while (!over) {
        Request request = toy_request(1 + dice(generator, 60), 1 + dice(generator, 50),
                                      dice(generator, 1'000'000));
        request.sampling.temperature = dice(generator, 2) == 0 ? 0.0F : 1.1F;
        request.sampling.top_p = dice(generator, 2) == 0 ? 1.0F : 0.8F;
        request.sampling.frequency_penalty = dice(generator, 4) == 0 ? 0.5F : 0.0F;
        request.sampling.seed = generator();
        const std::vector<std::int64_t> whole = rig.expected(request);
        auto handle = request.handle;
        if (rig.engine().submit(request) != SubmitStatus::kAccepted) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            continue;
        }
        if (dice(generator, 4) == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(dice(generator, 3000)));
            handle->cancelled = true;
            rig.engine().cancel_soon();
        }
        const Answer answer = collect(*handle);
        ASSERT_FALSE(answer.hung);
        ASSERT_LE(answer.tokens.size(), whole.size());
        EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.begin()));
        if (answer.finish.reason == FinishReason::kLength) {
            EXPECT_EQ(answer.tokens, whole);
            ++num_complete;
        }
    }
}

class EngineSoakFaults : public testing::TestWithParam<unsigned> {};

TEST_P(EngineSoakFaults, ClientsFaultsAndRestartsForASecond) {
    std::mt19937 generator(GetParam());
    ToyChainOptions chain;
    chain.max_in_flight = 1 + GetParam() % 5;
    chain.num_stages = 1 + GetParam() % 3;
    chain.num_blocks = 24;
    chain.seed = GetParam();
    EngineOptions options;
    options.max_step_tokens = 4 + GetParam() * 7 % 60;
    options.max_sequences = 8;
    options.max_waiting = 6;
    EngineRig rig(options, chain);
    rig.chain().set_tamper([](const Step& step, StepResult& result) {
        if (to_number(step.plan.step) % 97 == 0) {
            result = {step.plan.epoch, step.plan.step, StepStatus::kFailed, "fault", {}, {}};
        }
    });
    std::atomic<bool> over = false;
    std::atomic<int> num_complete = 0;
    std::vector<std::future<void>> clients;
    for (unsigned client = 0; client < 12; ++client) {
        clients.push_back(std::async(std::launch::async, [&, client] {
            be_a_client(rig, GetParam() * 100 + client, over, num_complete);
        }));
    }
    for (std::uint64_t epoch = 2; epoch < 12; ++epoch) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50 + dice(generator, 100)));
        rig.chain().down("a worker left");
        if (dice(generator, 2) == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(dice(generator, 20)));
        }
        rig.chain().up(epoch);
        rig.engine().probe(std::chrono::milliseconds(dice(generator, 10)));
    }
    over = true;
    for (auto& client : clients) {
        client.get();
    }
    rig.expect_idle();
    EXPECT_GT(num_complete, 20);
    rig.chain().set_tamper(nullptr);
    const Request last = toy_request(50, 30, 4711);
    EXPECT_EQ(rig.ask(last).tokens, rig.expected(last));
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineSoakFaults, testing::Range(1U, 6U));

}  // namespace
}  // namespace shardline
