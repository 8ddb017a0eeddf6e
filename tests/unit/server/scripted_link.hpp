#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "step/stage_link.hpp"

namespace shardline {

// A chain whose last stage says what a script says: every sequence, in the order of arrival, gets
// the next script; the logits of its i-th answer token have one peak, at the script's i-th id.
// Behind the script's end, `after` is said for ever. Everything else is as in a real chain: a
// thread of its own, steps in order, results from outside send().
class ScriptedLink final : public StageLink {
public:
    ScriptedLink(std::uint32_t vocab_size, std::int64_t after)
        : vocab_size_(vocab_size), after_(after) {}
    ~ScriptedLink() override;

    void start(ChainListener& listener);  // and report the chain as up
    void stop();

    // For the sequences that come next; the last script is used again and again.
    void set_scripts(std::vector<std::vector<std::int64_t>> scripts);
    void set_step_time(std::chrono::milliseconds time) { step_time_ms_ = time.count(); }
    void set_hanging(bool hanging);          // steps are taken and never come back
    void fail_next_step(std::string error);  // one step comes back as failed
    void go_down(const std::string& reason);
    void come_up();

    std::vector<std::vector<std::int64_t>> prompts() const;  // of all sequences
    std::uint64_t num_steps() const { return num_steps_; }

    bool send(Step step) override;
    void cancel(Epoch epoch, StepId step) override;
    std::uint32_t max_in_flight() const override { return 2; }

private:
    struct Known {
        std::vector<std::int64_t> tokens;  // as fed, by position
        std::uint32_t num_prompt = 0;      // 0 until the first answer token is fed
        std::size_t script = 0;
    };

    void run();
    StepResult answer(const Step& step);
    std::int64_t next_token(const Span& span) const;
    void learn(const Step& step);

    const std::uint32_t vocab_size_;
    const std::int64_t after_;
    std::atomic<std::int64_t> step_time_ms_{0};
    std::atomic<std::uint64_t> num_steps_{0};
    ChainListener* listener_ = nullptr;
    std::thread thread_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Step> steps_;                                 // guarded by mutex_
    std::vector<StepId> cancelled_;                          // guarded by mutex_
    std::vector<std::vector<std::int64_t>> scripts_ = {{}};  // guarded by mutex_
    std::size_t next_script_ = 0;                            // guarded by mutex_
    std::map<SequenceId, Known> known_;                      // guarded by mutex_
    std::string failure_;                                    // guarded by mutex_
    Epoch epoch_{0};                                         // guarded by mutex_
    bool up_ = false;                                        // guarded by mutex_
    bool hanging_ = false;                                   // guarded by mutex_
    bool stopping_ = false;                                  // guarded by mutex_
};

}  // namespace shardline
