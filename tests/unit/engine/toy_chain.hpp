#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/request.hpp"
#include "step/stage_link.hpp"

namespace shardline {

inline constexpr std::uint32_t kToyVocab = 61;
inline constexpr std::uint32_t kToyPadding = 3;  // logits beyond the vocabulary, huge on purpose

struct ToyChainOptions {
    std::uint32_t num_stages = 2;
    std::uint32_t max_in_flight = 2;
    std::uint32_t num_blocks = 64;
    std::uint32_t max_rows = 512;
    std::uint32_t max_context = 4096;
    unsigned seed = 1;
    bool shuffle_results = true;  // hand results over in any order
};

// A chain whose "model" is a hash of everything a token can see. Each stage writes a value per
// position into its own blocks and reads the whole history back through the span's block table, so
// a wrong table, position, row or a block given to two sequences changes the answer; it also notes
// what it catches in the act. Steps run in order on a thread of its own.
class ToyChain final : public StageLink {
public:
    explicit ToyChain(const ToyChainOptions& options);
    ~ToyChain() override;

    void attach(ChainListener& listener) { listener_ = &listener; }
    void close();  // no call of the listener begins after this returns

    void up(std::uint64_t epoch);
    void down(const std::string& reason);  // steps on their way are lost
    void hold(bool held);                  // steps wait while held
    void release(std::uint32_t count);     // lets this many held steps through
    void refuse(bool refusing);            // send() says no
    // Called for every result before it is handed over.
    void set_tamper(std::function<void(const Step&, StepResult&)> tamper);

    bool send(Step step) override;
    void cancel(Epoch epoch, StepId step) override;
    std::uint32_t max_in_flight() const override { return options_.max_in_flight; }

    // What the engine did against the rules; empty when it did nothing.
    std::vector<std::string> faults() const;
    std::vector<StepPlan> plans() const;  // as sent
    std::uint32_t num_cancels() const;
    std::uint32_t most_in_flight() const;
    bool wait_for_held(std::uint32_t count);  // until `count` steps wait; false after 10 s

private:
    struct Slot {
        std::uint64_t value = 0;
        std::uint32_t position = 0;
    };

    void run();
    bool may_run() const;
    StepResult execute(const Step& step);
    void copy_kv(const StepPlan& plan, std::uint32_t stage);
    void write_kv(const StepPlan& plan, std::uint32_t stage,
                  const std::vector<std::uint64_t>& rows);
    void attend(const StepPlan& plan, std::uint32_t stage, std::vector<std::uint64_t>& rows);
    Slot& slot(const Span& span, std::uint32_t stage, std::uint32_t position);
    void hand_over(StepResult result);
    void deliver_some(bool all);
    void check_sent(const Step& step);
    void fault(const std::string& text);

    const ToyChainOptions options_;
    ChainListener* listener_ = nullptr;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Step> queue_;
    std::set<std::uint64_t> cancelled_;
    std::vector<StepPlan> plans_;
    std::vector<std::string> faults_;
    std::function<void(const Step&, StepResult&)> tamper_;
    std::uint64_t epoch_ = 0;
    std::uint32_t num_in_flight_ = 0;
    std::uint32_t most_in_flight_ = 0;
    std::uint32_t num_cancels_ = 0;
    std::uint32_t num_released_ = 0;
    bool up_ = false;
    bool held_ = false;
    bool refusing_ = false;
    bool closed_ = false;

    std::vector<std::vector<Slot>> kv_;  // [stage][block * 32 + offset], the thread's own
    std::vector<StepResult> done_;       // not handed over yet, the thread's own
    std::mt19937 generator_;
    std::mutex delivery_;  // held while the listener is called
    std::thread thread_;
};

// What the toy model answers, computed without blocks, steps or an engine.
std::vector<std::int64_t> toy_answer(const Request& request, std::uint32_t num_stages,
                                     std::uint32_t max_answer_tokens);

}  // namespace shardline
