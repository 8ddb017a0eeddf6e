#include "server/chain_probe.hpp"

#include <fmt/format.h>

namespace shardline {

Readiness ChainProbe::check() {
    const auto asked = Clock::now();
    std::lock_guard lock(mutex_);
    const bool found_while_waiting = verdict_time_ > asked;
    const bool fresh = verdict_.ready && Clock::now() - verdict_time_ < freshness_;
    if (!found_while_waiting && !(fresh && engine_.chain_is_up())) {
        verdict_ = look();
        verdict_time_ = Clock::now();
    }
    return verdict_;
}

Readiness ChainProbe::look() {
    if (!engine_.chain_is_up()) {
        return {false, engine_.chain_down_reason()};
    }
    if (engine_.probe(patience_)) {
        return {true, ""};
    }
    if (!engine_.chain_is_up()) {
        return {false, engine_.chain_down_reason()};
    }
    return {false,
            fmt::format("no step came whole through the chain within {} ms", patience_.count())};
}

}  // namespace shardline
