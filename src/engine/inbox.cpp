#include "engine/inbox.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "base/log.hpp"

namespace shardline {

namespace {

constexpr std::size_t kMaxResults = 1024;  // steps in flight are a handful
constexpr std::size_t kMaxProbes = 64;

}  // namespace

Inbox::Inbox(std::uint32_t num_places) : num_places_(num_places) {}

SubmitResult Inbox::submit(Request request) {
    {
        std::lock_guard lock(mutex_);
        if (!chain_up_) {
            return {SubmitStatus::kChainDown, reason_};
        }
        const std::uint32_t wanted = request.num_answers();
        if (num_taken_ + wanted > num_places_) {
            return {SubmitStatus::kQueueFull,
                    fmt::format("{} answers are running or waiting of {} at most, {} more were "
                                "asked for",
                                num_taken_, num_places_, wanted)};
        }
        const auto known = taken_by_client_.find(request.client);
        const std::uint32_t taken = known == taken_by_client_.end() ? 0 : known->second;
        const std::uint32_t for_one = num_places_ - num_places_ / 4;
        if (taken + wanted > for_one) {
            return {SubmitStatus::kQueueFull,
                    fmt::format("{} answers of this client are running or waiting of {} at most, "
                                "{} more were asked for",
                                taken, for_one, wanted)};
        }
        num_taken_ += wanted;
        taken_by_client_[request.client] = taken + wanted;
        mail_.submissions.push_back(std::move(request));
    }
    arrived_.notify_one();
    return {};
}

std::optional<std::future<bool>> Inbox::probe() {
    std::promise<bool> promise;
    std::future<bool> future = promise.get_future();
    {
        std::lock_guard lock(mutex_);
        if (!chain_up_ || mail_.probes.size() >= kMaxProbes) {
            return std::nullopt;
        }
        mail_.probes.push_back(std::move(promise));
    }
    arrived_.notify_one();
    return future;
}

void Inbox::result(StepResult result) {
    {
        std::lock_guard lock(mutex_);
        if (mail_.closed) {
            return;
        }
        if (mail_.results.size() >= kMaxResults) {
            room_logger("engine")->warn("step {} dropped: more results than steps were sent",
                                        to_number(result.step));
            return;
        }
        mail_.results.push_back(std::move(result));
    }
    arrived_.notify_one();
}

void Inbox::chain_up(Epoch epoch) {
    {
        std::lock_guard lock(mutex_);
        if (mail_.closed) {
            return;
        }
        std::string lost_because = chain_up_ ? "the chain was set up anew" : reason_;
        if (mail_.chain) {
            lost_because = mail_.chain->lost_because;
        }
        chain_up_ = true;
        mail_.chain = ChainNews{true, epoch, std::move(lost_because)};
    }
    arrived_.notify_one();
}

void Inbox::chain_down(const std::string& reason) {
    {
        std::lock_guard lock(mutex_);
        if (mail_.closed) {
            return;
        }
        chain_up_ = false;
        reason_ = reason;
        mail_.chain = ChainNews{false, Epoch{}, reason};
    }
    arrived_.notify_one();
}

void Inbox::wake_for_cancels() {
    {
        std::lock_guard lock(mutex_);
        mail_.cancels = true;
    }
    arrived_.notify_one();
}

void Inbox::close(const std::string& reason) {
    {
        std::lock_guard lock(mutex_);
        chain_up_ = false;
        reason_ = reason;
        mail_.closed = true;
    }
    arrived_.notify_one();
}

bool Inbox::chain_is_up() const {
    std::lock_guard lock(mutex_);
    return chain_up_;
}

std::string Inbox::chain_down_reason() const {
    std::lock_guard lock(mutex_);
    return chain_up_ ? std::string() : reason_;
}

bool Inbox::has_mail() const {
    return !mail_.results.empty() || mail_.chain || !mail_.submissions.empty() ||
           !mail_.probes.empty() || mail_.cancels || mail_.closed;
}

Mail Inbox::take(std::optional<std::chrono::milliseconds> timeout) {
    std::unique_lock lock(mutex_);
    if (timeout) {
        arrived_.wait_for(lock, *timeout, [&] { return has_mail(); });
    } else {
        arrived_.wait(lock, [&] { return has_mail(); });
    }
    Mail taken = std::move(mail_);
    mail_ = Mail{};
    mail_.closed = taken.closed;
    return taken;
}

void Inbox::request_closed(const Request& request) {
    std::lock_guard lock(mutex_);
    num_taken_ -= request.num_answers();
    const auto taken = taken_by_client_.find(request.client);
    taken->second -= request.num_answers();
    if (taken->second == 0) {
        taken_by_client_.erase(taken);
    }
}

}  // namespace shardline
