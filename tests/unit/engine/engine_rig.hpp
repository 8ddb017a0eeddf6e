#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.hpp"
#include "toy_chain.hpp"

namespace shardline {

struct Answer {
    std::vector<std::int64_t> tokens;
    FinishEvent finish;
    bool hung = false;  // nothing came for 30 s
};

inline Answer collect(RequestHandle& handle) {
    Answer answer;
    while (true) {
        auto event = handle.events.pop_for(std::chrono::seconds(30));
        if (!event) {
            answer.hung = true;
            ADD_FAILURE() << "no event for 30 s";
            return answer;
        }
        if (event->token) {
            answer.tokens.push_back(event->token->token);
        }
        if (event->finish) {
            answer.finish = *event->finish;
            EXPECT_FALSE(handle.events.try_pop()) << "an event after the finish";
            return answer;
        }
    }
}

inline std::uint32_t dice(std::mt19937& generator, std::uint32_t sides) {
    return static_cast<std::uint32_t>(generator() % sides);
}

inline std::vector<std::int64_t> toy_prompt(std::size_t length, unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<std::int64_t> prompt(length);
    for (std::int64_t& token : prompt) {
        token = generator() % kToyVocab;
    }
    return prompt;
}

inline Request toy_request(std::size_t prompt_length, std::uint32_t max_tokens, unsigned seed) {
    Request request;
    request.id = RequestId{seed};
    request.prompt = toy_prompt(prompt_length, seed);
    request.max_tokens = max_tokens;
    request.handle = std::make_shared<RequestHandle>(max_tokens);
    return request;
}

// An engine on a toy chain. Taken down in the right order; afterwards nothing may be left over.
class EngineRig {
public:
    explicit EngineRig(EngineOptions engine_options = {}, ToyChainOptions chain_options = {},
                       bool up = true)
        : num_stages_(chain_options.num_stages) {
        engine_options.num_blocks =
            engine_options.num_blocks == 0 ? chain_options.num_blocks : engine_options.num_blocks;
        engine_options.max_context =
            engine_options.max_context == 0 ? 1024 : engine_options.max_context;
        engine_options.vocab_size = kToyVocab;
        max_context_ = std::min(engine_options.max_context,
                                (engine_options.num_blocks - 1) * kBlockTokens + 1);
        chain_options.num_blocks = engine_options.num_blocks;
        chain_options.max_rows = engine_options.max_step_tokens;
        chain_options.max_context = engine_options.max_context;
        chain_ = std::make_unique<ToyChain>(chain_options);
        engine_ = std::make_unique<Engine>(engine_options);
        chain_->attach(*engine_);
        engine_->start(*chain_);
        if (up) {
            chain_->up(1);
        }
    }

    ~EngineRig() {
        engine_->stop();
        chain_->close();
        EXPECT_EQ(chain_->faults(), std::vector<std::string>{});
    }

    Engine& engine() { return *engine_; }
    ToyChain& chain() { return *chain_; }

    std::shared_ptr<RequestHandle> submit(Request request) {
        auto handle = request.handle;
        const SubmitResult result = engine_->submit(std::move(request));
        EXPECT_EQ(result, SubmitStatus::kAccepted) << result.reason;
        return handle;
    }

    Answer ask(Request request) { return collect(*submit(std::move(request))); }

    std::vector<std::int64_t> expected(const Request& request) const {
        const auto room = max_context_ - static_cast<std::uint32_t>(request.prompt.size());
        return toy_answer(request, num_stages_, std::min(request.max_tokens, room));
    }

    // Waits for the engine to be idle with all blocks back.
    void expect_idle() {
        for (int i = 0; i < 10'000; ++i) {
            const EngineStats stats = engine_->stats();
            if (stats.running == 0 && stats.waiting == 0 && stats.blocks_used == 0) {
                return;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        const EngineStats stats = engine_->stats();
        ADD_FAILURE() << stats.running << " running, " << stats.waiting << " waiting, "
                      << stats.blocks_used << " blocks used";
    }

private:
    std::uint32_t num_stages_;
    std::uint32_t max_context_;
    std::unique_ptr<ToyChain> chain_;
    std::unique_ptr<Engine> engine_;
};

}  // namespace shardline
