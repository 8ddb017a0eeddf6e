#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "sampling/logits.hpp"

namespace shardline {

namespace {

// exp(x) for x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for exp(r), n into the
// exponent bits. Relative error about 1e-7.
inline float exp_of_nonpositive(float x) {
    constexpr float kLeast = -86.0F;
    constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
    const float bounded = x > kLeast ? x : kLeast;
    const float shifted = bounded * 1.44269504F + kRounder;
    const float n = shifted - kRounder;
    const float r = (bounded - n * 0.693359375F) + n * 2.12194440e-4F;
    float poly = 1.9875691500e-4F;
    poly = poly * r + 1.3981999507e-3F;
    poly = poly * r + 8.3334519073e-3F;
    poly = poly * r + 4.1665795894e-2F;
    poly = poly * r + 1.6666665459e-1F;
    poly = poly * r + 5.0000001201e-1F;
    poly = poly * r * r + r + 1.0F;
    const auto exponent = std::bit_cast<std::uint32_t>(shifted) << 23;  // n in the low bits
    const float power = std::bit_cast<float>(exponent + 0x3f800000U);
    return x > kLeast ? poly * power : 0.0F;
}

}  // namespace

void softmax_weights(std::span<const float> logits, float max, float scale,
                     std::vector<float>& weights) {
    weights.resize(logits.size());
    const float* in = logits.data();
    float* out = weights.data();
    for (std::size_t i = 0; i < logits.size(); ++i) {
        out[i] = exp_of_nonpositive((in[i] - max) * scale);
    }
}

double sum_weights(std::span<const float> weights) {
    std::array<double, kLogitLanes> sums{};
    std::size_t i = 0;
    for (; i + kLogitLanes <= weights.size(); i += kLogitLanes) {
        for (std::size_t lane = 0; lane < kLogitLanes; ++lane) {
            sums[lane] += static_cast<double>(weights[i + lane]);
        }
    }
    double total = 0.0;
    for (; i < weights.size(); ++i) {
        total += static_cast<double>(weights[i]);
    }
    for (double sum : sums) {
        total += sum;
    }
    return total;
}

void drop_light_weights(std::span<float> weights, float least, std::size_t last_equal) {
    const std::size_t end_equal = std::min(last_equal + 1, weights.size());
    for (std::size_t i = 0; i < end_equal; ++i) {
        weights[i] = weights[i] >= least ? weights[i] : 0.0F;
    }
    for (std::size_t i = end_equal; i < weights.size(); ++i) {
        weights[i] = weights[i] > least ? weights[i] : 0.0F;
    }
}

}  // namespace shardline
