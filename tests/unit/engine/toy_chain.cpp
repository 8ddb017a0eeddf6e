#include "toy_chain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sampling/sampler.hpp"

namespace shardline {

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t value = (a ^ (b * 0x9e3779b97f4a7c15U)) + 0x632be59bd9b4e019U;
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93U;
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93U;
    return value ^ (value >> 32);
}

std::uint64_t embed(std::int64_t token) {
    return mix(17, static_cast<std::uint64_t>(token));
}

// As in real kernels, a token that runs as a span of its own has other bits than in a longer one.
std::uint64_t kv_value(std::uint64_t row, std::uint32_t stage, std::uint32_t position, bool alone) {
    return mix(mix(row, stage), 2 * std::uint64_t{position} + (alone ? 1 : 0));
}

std::vector<float> head(std::uint64_t row) {
    std::vector<float> logits(kToyVocab + kToyPadding, 1000.0F);
    for (std::uint32_t token = 0; token < kToyVocab; ++token) {
        logits[token] = static_cast<float>(mix(row, token) >> 48) / 8192.0F;
    }
    return logits;
}

}  // namespace

ToyChain::ToyChain(const ToyChainOptions& options)
    : options_(options),
      kv_(options.num_stages, std::vector<Slot>(options.num_blocks * kBlockTokens)),
      generator_(options.seed),
      thread_([this] { run(); }) {}

ToyChain::~ToyChain() {
    close();
    thread_.join();
}

void ToyChain::close() {
    {
        std::lock_guard lock(mutex_);
        closed_ = true;
    }
    changed_.notify_all();
    std::lock_guard wait_for_delivery(delivery_);
}

void ToyChain::up(std::uint64_t epoch) {
    {
        std::lock_guard lock(mutex_);
        queue_.clear();
        num_in_flight_ = 0;
        epoch_ = epoch;
        up_ = true;
    }
    listener_->chain_up(Epoch{epoch});
}

void ToyChain::down(const std::string& reason) {
    {
        std::lock_guard lock(mutex_);
        queue_.clear();
        num_in_flight_ = 0;
        up_ = false;
    }
    listener_->chain_down(reason);
}

void ToyChain::hold(bool held) {
    {
        std::lock_guard lock(mutex_);
        held_ = held;
        num_released_ = 0;
    }
    changed_.notify_all();
}

void ToyChain::release(std::uint32_t count) {
    {
        std::lock_guard lock(mutex_);
        num_released_ += count;
    }
    changed_.notify_all();
}

void ToyChain::refuse(bool refusing) {
    std::lock_guard lock(mutex_);
    refusing_ = refusing;
}

void ToyChain::set_tamper(std::function<void(const Step&, StepResult&)> tamper) {
    std::lock_guard lock(mutex_);
    tamper_ = std::move(tamper);
}

bool ToyChain::send(Step step) {
    {
        std::lock_guard lock(mutex_);
        if (!up_ || refusing_ || to_number(step.plan.epoch) != epoch_) {
            return false;
        }
        check_sent(step);
        most_in_flight_ = std::max(most_in_flight_, ++num_in_flight_);
        plans_.push_back(step.plan);
        queue_.push_back(std::move(step));
    }
    changed_.notify_all();
    return true;
}

void ToyChain::check_sent(const Step& step) {
    const StepPlan& plan = step.plan;
    const StepLimits limits{options_.num_blocks, options_.max_rows, options_.max_context};
    if (const std::string broken = check_plan(plan, limits); !broken.empty()) {
        faults_.push_back(broken);
    }
    if (num_in_flight_ >= options_.max_in_flight) {
        faults_.push_back("more steps in flight than allowed");
    }
    for (const Span& span : plan.spans) {
        const bool spare =
            std::count(span.block_table.begin(), span.block_table.end(), kSpareBlock) > 0;
        if (spare != (span.sequence == kSpareSequence)) {
            faults_.push_back("the spare block is nobody's, and nobody has another");
        }
    }
    const Tensor& ids = step.activations.at(0);
    if (ids.name != "input_ids" || ids.type != ElementType::kI64 ||
        ids.shape != std::vector<std::int64_t>{num_rows(plan)} ||
        ids.bytes.size() != num_rows(plan) * sizeof(std::int64_t)) {
        faults_.push_back("input_ids do not fit the plan");
    }
}

void ToyChain::cancel(Epoch epoch, StepId step) {
    std::lock_guard lock(mutex_);
    if (to_number(epoch) != epoch_) {
        faults_.push_back("cancel of another epoch");
    }
    ++num_cancels_;
    cancelled_.insert(to_number(step));
}

bool ToyChain::may_run() const {
    return !queue_.empty() && (!held_ || num_released_ > 0);
}

void ToyChain::run() {
    while (true) {
        Step step;
        bool cancelled = false;
        {
            std::unique_lock lock(mutex_);
            // What is done goes out before the thread goes to sleep.
            if (!closed_ && !may_run() && !done_.empty()) {
                lock.unlock();
                deliver_some(true);
                continue;
            }
            changed_.wait(lock, [&] { return closed_ || may_run(); });
            if (closed_) {
                return;
            }
            num_released_ -= held_ ? 1 : 0;
            step = std::move(queue_.front());
            queue_.pop_front();
            cancelled = cancelled_.erase(to_number(step.plan.step)) > 0;
        }
        StepResult result;
        if (cancelled) {
            result = {step.plan.epoch, step.plan.step, StepStatus::kCancelled, {}, {}, {}};
        } else {
            result = execute(step);
        }
        std::function<void(const Step&, StepResult&)> tamper;
        {
            std::lock_guard lock(mutex_);
            tamper = tamper_;
        }
        if (tamper) {
            tamper(step, result);
        }
        done_.push_back(std::move(result));
        deliver_some(!options_.shuffle_results);
    }
}

void ToyChain::deliver_some(bool all) {
    std::shuffle(done_.begin(), done_.end(), generator_);
    const std::size_t keep = all ? 0 : generator_() % (done_.size() + 1);
    while (done_.size() > keep) {
        StepResult result = std::move(done_.back());
        done_.pop_back();
        hand_over(std::move(result));
    }
}

void ToyChain::hand_over(StepResult result) {
    std::lock_guard delivery(delivery_);
    {
        std::lock_guard lock(mutex_);
        if (closed_) {
            return;
        }
        if (up_ && to_number(result.epoch) == epoch_) {
            --num_in_flight_;
        }
    }
    listener_->step_done(std::move(result));
}

StepResult ToyChain::execute(const Step& step) {
    const StepPlan& plan = step.plan;
    std::vector<std::int64_t> tokens(num_rows(plan));
    std::memcpy(tokens.data(), step.activations.at(0).bytes.data(),
                tokens.size() * sizeof(std::int64_t));
    std::vector<std::uint64_t> rows;
    std::transform(tokens.begin(), tokens.end(), std::back_inserter(rows), embed);
    StepResult result{plan.epoch, plan.step, StepStatus::kDone, {}, {}, {}};
    for (std::uint32_t stage = 0; stage < options_.num_stages; ++stage) {
        copy_kv(plan, stage);
        write_kv(plan, stage, rows);
        attend(plan, stage, rows);
        result.timings.push_back({stage, 1, 2, rows.size() * sizeof(float)});
    }
    constexpr std::uint32_t kWidth = kToyVocab + kToyPadding;
    Tensor logits{"logits", ElementType::kF32, {}, {}};
    logits.shape = {static_cast<std::int64_t>(plan.kept_rows.size()), kWidth};
    for (std::uint32_t row : plan.kept_rows) {
        const std::vector<float> values = head(rows[row]);
        logits.bytes.append(reinterpret_cast<const char*>(values.data()), kWidth * sizeof(float));
    }
    result.outputs.push_back(std::move(logits));
    return result;
}

ToyChain::Slot& ToyChain::slot(const Span& span, std::uint32_t stage, std::uint32_t position) {
    const BlockId block = span.block_table[position / kBlockTokens];
    return kv_[stage][to_number(block) * kBlockTokens + position % kBlockTokens];
}

void ToyChain::copy_kv(const StepPlan& plan, std::uint32_t stage) {
    for (const BlockCopy& copy : plan.copy_blocks) {
        std::copy_n(kv_[stage].begin() + to_number(copy.from) * std::ptrdiff_t{kBlockTokens},
                    kBlockTokens,
                    kv_[stage].begin() + to_number(copy.to) * std::ptrdiff_t{kBlockTokens});
    }
}

void ToyChain::write_kv(const StepPlan& plan, std::uint32_t stage,
                        const std::vector<std::uint64_t>& rows) {
    std::size_t row = 0;
    for (const Span& span : plan.spans) {
        for (std::uint32_t i = 0; i < span.num_tokens; ++i, ++row) {
            const std::uint32_t position = span.past_len + i;
            slot(span, stage, position) = {
                kv_value(rows[row], stage, position, span.num_tokens == 1), position};
        }
    }
}

void ToyChain::attend(const StepPlan& plan, std::uint32_t stage, std::vector<std::uint64_t>& rows) {
    std::size_t row = 0;
    for (const Span& span : plan.spans) {
        for (std::uint32_t i = 0; i < span.num_tokens; ++i, ++row) {
            std::uint64_t seen = stage;
            for (std::uint32_t position = 0; position <= span.past_len + i; ++position) {
                const Slot& read = slot(span, stage, position);
                if (span.sequence != kSpareSequence && read.position != position) {
                    fault(fmt::format("sequence {} reads position {} and finds {}",
                                      to_number(span.sequence), position, read.position));
                }
                seen = mix(seen, read.value);
            }
            rows[row] = mix(rows[row], seen);
        }
    }
}

void ToyChain::fault(const std::string& text) {
    std::lock_guard lock(mutex_);
    faults_.push_back(text);
}

std::vector<std::string> ToyChain::faults() const {
    std::lock_guard lock(mutex_);
    return faults_;
}

std::vector<StepPlan> ToyChain::plans() const {
    std::lock_guard lock(mutex_);
    return plans_;
}

std::uint32_t ToyChain::num_cancels() const {
    std::lock_guard lock(mutex_);
    return num_cancels_;
}

std::uint32_t ToyChain::most_in_flight() const {
    std::lock_guard lock(mutex_);
    return most_in_flight_;
}

bool ToyChain::wait_for_held(std::uint32_t count) {
    for (int i = 0; i < 10'000; ++i) {
        {
            std::lock_guard lock(mutex_);
            if (queue_.size() >= count) {
                return true;
            }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

std::vector<std::int64_t> toy_answer(const Request& request, std::uint32_t num_stages,
                                     std::uint32_t max_answer_tokens) {
    std::vector<std::int64_t> tokens = request.prompt;
    std::vector<std::vector<std::uint64_t>> kv(num_stages);
    Sampler sampler;
    std::size_t num_computed = 0;
    while (true) {
        std::uint64_t row = 0;
        for (; num_computed < tokens.size(); ++num_computed) {
            row = embed(tokens[num_computed]);
            for (std::uint32_t stage = 0; stage < num_stages; ++stage) {
                const bool alone =
                    num_computed >= request.prompt.size() || request.prompt.size() == 1;
                kv[stage].push_back(
                    kv_value(row, stage, static_cast<std::uint32_t>(num_computed), alone));
                std::uint64_t seen = stage;
                for (std::uint64_t value : kv[stage]) {
                    seen = mix(seen, value);
                }
                row = mix(row, seen);
            }
        }
        std::vector<float> logits = head(row);
        logits.resize(kToyVocab);
        const std::span<const std::int64_t> all(tokens);
        const TokenHistory history{all.first(request.prompt.size()),
                                   all.subspan(request.prompt.size())};
        const std::int64_t token =
            sampler.sample(logits, request.sampling, history, tokens.size())->token;
        const auto& stops = request.stop_tokens;
        if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
            break;
        }
        tokens.push_back(token);
        if (tokens.size() == request.prompt.size() + max_answer_tokens) {
            break;
        }
    }
    return {tokens.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()), tokens.end()};
}

}  // namespace shardline
