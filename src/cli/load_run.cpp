#include "cli/load_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "cli/submission.hpp"

namespace shardline {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMaxTokens = 1U << 20;

double ms_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

// Where the clients' threads put what they saw, and the first failure.
class Collector final {
public:
    explicit Collector(Engine& engine) : engine_(engine) {}

    void ask(std::vector<std::int64_t> prompt, std::uint32_t answer_tokens) {
        try {
            follow(std::move(prompt), answer_tokens);
        } catch (...) {
            std::lock_guard lock(mutex_);
            fault_ = fault_ ? fault_ : std::current_exception();
        }
    }

    bool failed() const {
        std::lock_guard lock(mutex_);
        return fault_ != nullptr;
    }

    LoadResult result(double seconds) {
        if (fault_) {
            std::rethrow_exception(fault_);
        }
        result_.seconds = seconds;
        return std::move(result_);
    }

private:
    void follow(std::vector<std::int64_t> prompt, std::uint32_t answer_tokens) {
        Request request;
        request.prompt = std::move(prompt);
        request.max_tokens = answer_tokens;
        request.handle = std::make_shared<RequestHandle>(answer_tokens);
        const auto handle = request.handle;
        const auto begin = Clock::now();
        submit_or_throw(engine_, std::move(request));
        std::vector<Clock::time_point> tokens;
        while (const auto event = handle->events.pop()) {
            if (event->token) {
                tokens.push_back(Clock::now());
            }
            if (event->finish) {
                throw_if_failed(*event->finish);
                break;
            }
        }
        std::lock_guard lock(mutex_);
        result_.num_tokens += tokens.size();
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (i == 0) {
                result_.first_token_ms.push_back(ms_between(begin, tokens[i]));
            } else {
                result_.between_tokens_ms.push_back(ms_between(tokens[i - 1], tokens[i]));
            }
        }
        result_.whole_answer_ms.push_back(ms_between(begin, Clock::now()));
    }

    Engine& engine_;
    mutable std::mutex mutex_;
    LoadResult result_;         // guarded by mutex_ while clients run
    std::exception_ptr fault_;  // as above
};

void run_closed_loop(Collector& collector, const Load& load) {
    std::vector<std::jthread> streams;
    for (std::uint32_t stream = 0; stream < load.num_streams; ++stream) {
        streams.emplace_back([&collector, &load, stream] {
            std::mt19937 random(load.seed * 1000 + stream);
            for (std::uint32_t i = 0; i < load.requests_per_stream && !collector.failed(); ++i) {
                auto prompt =
                    random_prompt(load.prompt_tokens.draw(random), load.vocab_size, random);
                collector.ask(std::move(prompt), load.answer_tokens.draw(random));
            }
        });
    }
}

void run_open_loop(Collector& collector, const Load& load) {
    std::mt19937 random(load.seed);
    std::exponential_distribution<double> gap_s(*load.requests_per_s);
    std::vector<std::jthread> requests;
    auto next = Clock::now();
    for (std::uint32_t i = 0; i < load.num_streams * load.requests_per_stream; ++i) {
        next += std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(gap_s(random)));
        std::this_thread::sleep_until(next);
        auto prompt = random_prompt(load.prompt_tokens.draw(random), load.vocab_size, random);
        requests.emplace_back([&collector, prompt = std::move(prompt),
                               answer = load.answer_tokens.draw(random)]() mutable {
            collector.ask(std::move(prompt), answer);
        });
    }
}

}  // namespace

TokenRange parse_token_range(const std::string& text) {
    TokenRange range;
    const char* const end = text.data() + text.size();
    std::from_chars_result parsed = std::from_chars(text.data(), end, range.least);
    range.most = range.least;
    if (parsed.ec == std::errc() && std::string_view(parsed.ptr, end).starts_with("..")) {
        parsed = std::from_chars(parsed.ptr + 2, end, range.most);
    }
    if (parsed.ec != std::errc() || parsed.ptr != end || range.least == 0 ||
        range.most < range.least || range.most > kMaxTokens) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' is no number of tokens; write it as 64 or 32..256", text));
    }
    return range;
}

std::vector<std::int64_t> random_prompt(std::uint32_t num_tokens, std::uint32_t vocab_size,
                                        std::mt19937& random) {
    std::vector<std::int64_t> prompt(num_tokens);
    for (std::int64_t& token : prompt) {
        token = std::uniform_int_distribution<std::int64_t>(0, vocab_size - 1)(random);
    }
    return prompt;
}

LoadResult run_load(Engine& engine, const Load& load) {
    Collector collector(engine);
    const auto begin = Clock::now();
    if (load.requests_per_s) {
        run_open_loop(collector, load);
    } else {
        run_closed_loop(collector, load);
    }
    return collector.result(ms_between(begin, Clock::now()) / 1000.0);
}

LoadResult run_one(Engine& engine, std::vector<std::int64_t> prompt, std::uint32_t answer_tokens) {
    Collector collector(engine);
    const auto begin = Clock::now();
    collector.ask(std::move(prompt), answer_tokens);
    return collector.result(ms_between(begin, Clock::now()) / 1000.0);
}

}  // namespace shardline
