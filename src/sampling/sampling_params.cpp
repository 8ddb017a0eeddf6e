#include "sampling/sampling_params.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"

namespace shardline {

namespace {

[[noreturn]] void refuse(const std::string& message) {
    throw Error(ErrorCode::kInvalidArgument, message);
}

// Written so that a NaN is refused as well.
void check_range(const char* field, float value, float least, float most) {
    if (!(value >= least && value <= most)) {
        refuse(fmt::format("{} is {}, must be between {} and {}", field, value, least, most));
    }
}

// For fields whose lower end makes no sense itself: (0, most].
void check_positive(const char* field, float value, float most) {
    if (!(value > 0.0F && value <= most)) {
        refuse(fmt::format("{} is {}, must be above 0 and at most {}", field, value, most));
    }
}

void check_bias(const std::vector<std::pair<std::int64_t, float>>& logit_bias,
                std::uint32_t vocab_size) {
    if (logit_bias.size() > kMaxLogitBiasEntries) {
        refuse(fmt::format("logit_bias has {} entries, at most {} are allowed", logit_bias.size(),
                           kMaxLogitBiasEntries));
    }
    for (const auto& [token, bias] : logit_bias) {
        if (token < 0 || token >= std::int64_t{vocab_size}) {
            refuse(fmt::format("logit_bias names token {}, must be between 0 and {}", token,
                               std::int64_t{vocab_size} - 1));
        }
        if (!(bias >= -100.0F && bias <= 100.0F)) {
            refuse(fmt::format("logit_bias of token {} is {}, must be between -100 and 100", token,
                               bias));
        }
    }
}

}  // namespace

void SamplingParams::validate(std::uint32_t vocab_size) const {
    check_range("temperature", temperature, 0.0F, 2.0F);
    check_positive("top_p", top_p, 1.0F);
    check_range("min_p", min_p, 0.0F, 1.0F);
    check_positive("repetition_penalty", repetition_penalty, 10.0F);
    check_range("presence_penalty", presence_penalty, -2.0F, 2.0F);
    check_range("frequency_penalty", frequency_penalty, -2.0F, 2.0F);
    if (num_logprobs > kMaxLogprobs) {
        refuse(fmt::format("top_logprobs is {}, must be between 0 and {}", num_logprobs,
                           kMaxLogprobs));
    }
    check_bias(logit_bias, vocab_size);
}

}  // namespace shardline
