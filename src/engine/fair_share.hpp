#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

namespace shardline {

// How much of the fleet's work each client has had: rows computed for its sequences, prompt and
// answer alike. Whoever has had least goes first. A client that comes, or comes back, starts level
// with the least served of those who are there: being away earns nothing.
// Owned by the scheduler, called from the engine's thread. Forgets a client that has nothing open.
class FairShare final {
public:
    void opened(std::uint64_t client) {
        const auto least = least_served();
        Account& account = accounts_[client];
        if (account.num_open++ == 0) {
            account.rows = least.value_or(0);
        }
    }

    void closed(std::uint64_t client) {
        const auto account = accounts_.find(client);
        if (--account->second.num_open == 0) {
            accounts_.erase(account);
        }
    }

    void served(std::uint64_t client, std::uint32_t rows) { accounts_.at(client).rows += rows; }

    std::uint64_t rows_of(std::uint64_t client) const { return accounts_.at(client).rows; }

private:
    struct Account {
        std::uint32_t num_open = 0;
        std::uint64_t rows = 0;
    };

    std::optional<std::uint64_t> least_served() const {
        const auto least = std::min_element(
            accounts_.begin(), accounts_.end(),
            [](const auto& a, const auto& b) { return a.second.rows < b.second.rows; });
        return least == accounts_.end() ? std::nullopt : std::optional(least->second.rows);
    }

    std::map<std::uint64_t, Account> accounts_;  // by client
};

}  // namespace shardline
