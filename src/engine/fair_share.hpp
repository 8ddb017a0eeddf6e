#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace shardline {

// How much of the fleet's work each client has had: rows computed for its sequences, prompt and
// answer alike. Whoever has had least goes first. A client that comes, or comes back, starts where
// an even share would be by now, so being away earns nothing; and whoever has had more is overtaken
// by newcomers only until the others' share has grown as large. Both ways it counts up to kMost.
// Owned by the scheduler, called from the engine's thread. Forgets a client that has nothing open.
class FairShare final {
public:
    static constexpr double kMost = 4096.0;  // rows beyond or short of the even share

    void opened(std::uint64_t client) {
        const auto [account, is_new] = accounts_.try_emplace(client);
        if (is_new) {
            account->second.rows = even_share_;
        }
        ++account->second.num_open;
    }

    void closed(std::uint64_t client) {
        const auto account = accounts_.find(client);
        if (--account->second.num_open == 0) {
            accounts_.erase(account);
        }
    }

    void served(std::uint64_t client, std::uint32_t rows) {
        even_share_ += static_cast<double>(rows) / static_cast<double>(accounts_.size());
        double& had = accounts_.at(client).rows;
        had = std::clamp(had + rows, even_share_ - kMost, even_share_ + kMost);
    }

    double rows_of(std::uint64_t client) const { return accounts_.at(client).rows; }

private:
    struct Account {
        std::uint32_t num_open = 0;
        double rows = 0.0;
    };

    std::map<std::uint64_t, Account> accounts_;  // by client
    double even_share_ = 0.0;                    // of one who has been there all the time
};

}  // namespace shardline
