#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "step/step.hpp"

namespace shardline {

// The chain's present state, told when it changed since the last time. Several changes in a row are
// told as one: whatever ran before them is lost either way.
struct ChainNews {
    bool up = false;
    Epoch epoch{};
    std::string lost_because;  // why what ran before is lost
};

// Everything that arrived for the engine thread since it last looked.
struct Mail {
    std::vector<StepResult> results;
    std::optional<ChainNews> chain;
    std::vector<Request> submissions;
    std::vector<std::promise<bool>> probes;
    bool cancels = false;  // some handle's `cancelled` may be set
    bool closed = false;   // stop; the rest of the mail still counts
};

// The engine's letter box: any thread puts in, the engine thread takes everything at once. Each
// kind has its bound: requests by admission (taken here, so that a caller is refused at once),
// probes and results by constants that a chain keeping its contract never reaches. A place is one
// answer's; a quarter of them is always kept from whichever client has most.
class Inbox final {
public:
    explicit Inbox(std::uint32_t num_places);

    SubmitResult submit(Request request);
    std::optional<std::future<bool>> probe();  // nothing when the chain is down
    void result(StepResult result);
    void chain_up(Epoch epoch);
    void chain_down(const std::string& reason);
    void wake_for_cancels();
    void close(const std::string& reason);

    bool chain_is_up() const;
    std::string chain_down_reason() const;  // empty when up

    // Engine thread: waits until there is mail, or until `timeout`.
    Mail take(std::optional<std::chrono::milliseconds> timeout);
    // Engine thread: the answers to a request got their finish event, their places are free.
    void request_closed(const Request& request);

private:
    bool has_mail() const;

    const std::uint32_t num_places_;
    mutable std::mutex mutex_;
    std::condition_variable arrived_;
    Mail mail_;                    // guarded by mutex_, as all below
    std::uint32_t num_taken_ = 0;  // places: submitted, no finish event yet
    std::map<std::uint64_t, std::uint32_t> taken_by_client_;
    bool chain_up_ = false;
    std::string reason_ = "the chain has not come up yet";  // of the last time it was down
};

}  // namespace shardline
