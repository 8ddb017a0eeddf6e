#include "unit/server/scripted_link.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace shardline {
namespace {

constexpr float kPeak = 100.0F;  // above a flat 0: certain at any temperature

std::vector<std::int64_t> input_ids_of(const Step& step) {
    for (const Tensor& tensor : step.activations) {
        if (tensor.name == "input_ids") {
            std::vector<std::int64_t> ids(tensor.bytes.size() / sizeof(std::int64_t));
            std::memcpy(ids.data(), tensor.bytes.data(), tensor.bytes.size());
            return ids;
        }
    }
    return {};
}

}  // namespace

ScriptedLink::~ScriptedLink() {
    stop();
}

void ScriptedLink::start(ChainListener& listener) {
    listener_ = &listener;
    thread_ = std::thread([this] { run(); });
    come_up();
}

void ScriptedLink::stop() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void ScriptedLink::set_scripts(std::vector<std::vector<std::int64_t>> scripts) {
    std::lock_guard lock(mutex_);
    scripts_ = std::move(scripts);
    next_script_ = 0;
}

void ScriptedLink::set_hanging(bool hanging) {
    {
        std::lock_guard lock(mutex_);
        hanging_ = hanging;
    }
    changed_.notify_all();
}

void ScriptedLink::fail_next_step(std::string error) {
    std::lock_guard lock(mutex_);
    failure_ = std::move(error);
}

void ScriptedLink::go_down(const std::string& reason) {
    {
        std::lock_guard lock(mutex_);
        up_ = false;
        steps_.clear();
    }
    listener_->chain_down(reason);
}

void ScriptedLink::come_up() {
    Epoch epoch{};
    {
        std::lock_guard lock(mutex_);
        epoch_ = Epoch{to_number(epoch_) + 1};
        up_ = true;
        epoch = epoch_;
    }
    listener_->chain_up(epoch);
}

std::vector<std::vector<std::int64_t>> ScriptedLink::prompts() const {
    std::lock_guard lock(mutex_);
    std::vector<std::vector<std::int64_t>> prompts;
    for (const auto& [sequence, known] : known_) {
        const std::size_t size = known.num_prompt > 0 ? known.num_prompt : known.tokens.size();
        prompts.emplace_back(known.tokens.begin(),
                             known.tokens.begin() + static_cast<std::ptrdiff_t>(size));
    }
    return prompts;
}

bool ScriptedLink::send(Step step) {
    {
        std::lock_guard lock(mutex_);
        if (!up_ || step.plan.epoch != epoch_ || steps_.size() >= max_in_flight()) {
            return false;
        }
        steps_.push_back(std::move(step));
    }
    changed_.notify_all();
    return true;
}

void ScriptedLink::cancel(Epoch /*epoch*/, StepId step) {
    std::lock_guard lock(mutex_);
    cancelled_.push_back(step);
}

void ScriptedLink::run() {
    for (;;) {
        Step step;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return stopping_ || (!hanging_ && !steps_.empty()); });
            if (stopping_) {
                return;
            }
            step = steps_.front();  // stays in flight until it is answered
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(step_time_ms_));
        ++num_steps_;
        StepResult result = answer(step);
        {
            std::lock_guard lock(mutex_);
            if (steps_.empty() || steps_.front().plan.step != step.plan.step) {
                continue;  // lost with the chain
            }
            steps_.pop_front();
        }
        listener_->step_done(std::move(result));
    }
}

StepResult ScriptedLink::answer(const Step& step) {
    std::lock_guard lock(mutex_);
    StepResult result;
    result.epoch = step.plan.epoch;
    result.step = step.plan.step;
    if (!failure_.empty()) {
        result.status = StepStatus::kFailed;
        result.error = std::exchange(failure_, "");
        return result;
    }
    if (std::find(cancelled_.begin(), cancelled_.end(), step.plan.step) != cancelled_.end()) {
        result.status = StepStatus::kCancelled;
        return result;
    }
    learn(step);
    Tensor logits;
    logits.name = "logits";
    logits.shape = {static_cast<std::int64_t>(step.plan.kept_rows.size()), vocab_size_};
    std::vector<float> values(step.plan.kept_rows.size() * std::size_t{vocab_size_}, 0.0F);
    for (std::size_t i = 0; i < step.plan.kept_rows.size(); ++i) {
        std::uint32_t row = step.plan.kept_rows[i];
        for (const Span& span : step.plan.spans) {
            if (row < span.num_tokens) {
                const std::int64_t token = next_token(span);
                values[i * vocab_size_ + static_cast<std::size_t>(token)] = kPeak;
                break;
            }
            row -= span.num_tokens;
        }
    }
    logits.bytes.resize(values.size() * sizeof(float));
    if (!values.empty()) {  // a chunk before the last keeps no row
        std::memcpy(logits.bytes.data(), values.data(), logits.bytes.size());
    }
    result.outputs.push_back(std::move(logits));
    return result;
}

void ScriptedLink::learn(const Step& step) {
    const std::vector<std::int64_t> ids = input_ids_of(step);
    std::size_t row = 0;
    for (const Span& span : step.plan.spans) {
        if (span.sequence != kSpareSequence) {
            const auto [place, is_new] = known_.try_emplace(span.sequence);
            Known& known = place->second;
            if (is_new) {
                known.script = std::min(next_script_, scripts_.size() - 1);
                next_script_ = known.script + 1;
            }
            // A prompt runs in spans of several tokens, but for a prompt of one token.
            if (span.num_tokens == 1 && known.num_prompt == 0) {
                known.num_prompt = std::max(span.past_len, 1U);
            }
            const std::size_t end = std::size_t{span.past_len} + span.num_tokens;
            known.tokens.resize(std::max(known.tokens.size(), end));
            std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(row), span.num_tokens,
                        known.tokens.begin() + span.past_len);
        }
        row += span.num_tokens;
    }
}

std::int64_t ScriptedLink::next_token(const Span& span) const {
    if (span.sequence == kSpareSequence) {
        return 0;
    }
    const Known& known = known_.at(span.sequence);
    const auto& script = scripts_[std::min(known.script, scripts_.size() - 1)];
    // Only the last chunk of a prompt is asked for a token that counts: the first.
    const std::size_t index = span.num_tokens > 1 ? 0 : span.past_len + 1 - known.num_prompt;
    return index < script.size() ? script[index] : after_;
}

}  // namespace shardline
