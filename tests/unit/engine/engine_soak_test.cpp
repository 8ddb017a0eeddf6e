#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <random>

#include "engine_rig.hpp"

namespace shardline {
namespace {

// How long each soak lasts: long ones are for a person, or a sanitizer's night.
std::chrono::duration<double> soak_time() {
    const char* seconds = std::getenv("SHARDLINE_SOAK_SECONDS");
    return std::chrono::duration<double>(seconds == nullptr ? 2.0 : std::strtod(seconds, nullptr));
}

// scouzi1966/maclocal-api#140, vllm-project/vllm#9910
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

// A pool for a quarter of the clients, who come, leave in every state, ask for several answers at
// once and too much.
class EngineSoakCrowd : public testing::Test {
protected:
    static constexpr std::uint32_t kContext = 320;
    static constexpr unsigned kClients = 32;

    EngineSoakCrowd() : rig_(engine_options(), chain_options()) {}

    static EngineOptions engine_options() {
        EngineOptions options;
        options.max_context = kContext;
        options.max_step_tokens = 64;
        options.max_sequences = 24;
        options.max_waiting = 12;
        return options;
    }
    static ToyChainOptions chain_options() {
        ToyChainOptions options;
        options.num_stages = 3;
        options.max_in_flight = 4;
        options.num_blocks = 1 + 36;  // of about four and a half for each client
        return options;
    }

    void be_a_client(unsigned seed) {
        std::mt19937 generator(seed);
        while (!over_) {
            dice(generator, 10) == 0 ? ask_too_much(generator) : ask(generator);
        }
    }

    void ask_too_much(std::mt19937& generator) {
        const std::uint32_t length = kContext + dice(generator, 3);
        const SubmitResult result = rig_.engine().submit(toy_request(length, 5, length));
        EXPECT_EQ(result, SubmitStatus::kTooLong);
        EXPECT_NE(result.reason.find(std::to_string(length) + " tokens"), std::string::npos);
        EXPECT_NE(result.reason.find("context of 320"), std::string::npos) << result.reason;
        ++num_too_long_;
    }

    // One or two answers to one prompt, which may begin as others do.
    void ask(std::mt19937& generator) {
        Request request = toy_request(1 + dice(generator, dice(generator, 2) == 0 ? 40 : 200),
                                      1 + dice(generator, dice(generator, 2) == 0 ? 20 : 150),
                                      dice(generator, 1'000'000));
        if (dice(generator, 3) == 0) {
            const std::vector<std::int64_t> common = toy_prompt(1 + dice(generator, 100), 4711);
            request.prompt.insert(request.prompt.begin(), common.begin(), common.end());
        }
        request.owner = dice(generator, 2);
        std::vector<Request> choices(1 + dice(generator, 4) / 3, request);
        std::size_t num_submitted = 0;
        bool full = false;
        for (Request& choice : choices) {
            choice.handle = std::make_shared<RequestHandle>(choice.max_tokens);
            choice.sampling.temperature = dice(generator, 2) == 0 ? 0.0F : 1.1F;
            choice.sampling.seed = generator();
            full = full || rig_.engine().submit(choice) != SubmitStatus::kAccepted;
            num_submitted += full ? 0 : 1;
        }
        choices.resize(num_submitted);
        if (full || dice(generator, 3) == 0) {
            num_full_ += full ? 1 : 0;
            std::this_thread::sleep_for(
                std::chrono::microseconds(dice(generator, dice(generator, 2) == 0 ? 100 : 20'000)));
            for (const Request& choice : choices) {
                choice.handle->cancelled = true;
            }
            rig_.engine().cancel_soon();
        }
        for (const Request& choice : choices) {
            judge(choice, collect(*choice.handle));
        }
    }

    void judge(const Request& request, const Answer& answer) {
        const std::vector<std::int64_t> whole = rig_.expected(request);
        ASSERT_FALSE(answer.hung);
        ASSERT_LE(answer.tokens.size(), whole.size());
        EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.begin()));
        if (answer.finish.reason == FinishReason::kLength) {
            EXPECT_EQ(answer.tokens, whole);
            ++num_complete_;
        } else {
            EXPECT_EQ(answer.finish.reason, FinishReason::kCancelled);
            ++num_left_;
        }
    }

    // What the mix must have brought about, or it was no soak.
    bool saw_everything() {
        const EngineStats stats = rig_.engine().stats();
        return num_complete_ > kClients && num_left_ > 0 && num_full_ > 0 && num_too_long_ > 0 &&
               stats.preemptions > 0 && stats.reused_tokens > 0;
    }

    EngineRig rig_;
    std::atomic<bool> over_ = false;
    std::atomic<unsigned> num_complete_ = 0;
    std::atomic<unsigned> num_left_ = 0;
    std::atomic<unsigned> num_full_ = 0;
    std::atomic<unsigned> num_too_long_ = 0;
};

TEST_F(EngineSoakCrowd, EveryAnswerIsWhatItWouldBeAlone) {
    std::vector<std::future<void>> clients;
    for (unsigned client = 0; client < kClients; ++client) {
        clients.push_back(
            std::async(std::launch::async, [this, client] { be_a_client(7000 + client); }));
    }
    std::this_thread::sleep_for(soak_time());
    // Longer where a sanitizer or a busy machine makes everything slow.
    for (int second = 0; second < 60 && !saw_everything(); ++second) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    EXPECT_TRUE(saw_everything());
    over_ = true;
    for (auto& client : clients) {
        client.get();
    }
    rig_.expect_idle();
    const EngineStats stats = rig_.engine().stats();
    std::printf(
        "%u complete, %u left, %u met a full queue, %u asked too much; %lu preemptions, "
        "%lu tokens reused\n",
        num_complete_.load(), num_left_.load(), num_full_.load(), num_too_long_.load(),
        static_cast<unsigned long>(stats.preemptions),
        static_cast<unsigned long>(stats.reused_tokens));
    const Request last = toy_request(200, 30, 4711);
    EXPECT_EQ(rig_.ask(last).tokens, rig_.expected(last));
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
    const auto end = std::chrono::steady_clock::now() + soak_time() / 2;
    for (std::uint64_t epoch = 2; epoch < 12 || std::chrono::steady_clock::now() < end; ++epoch) {
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
