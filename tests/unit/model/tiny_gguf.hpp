#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "unit/model/gguf_writer.hpp"

namespace shardline {

// A small language model with random weights as a GGUF file, and what it must answer: computed
// here in double precision from the definition of the architecture, without OpenVINO.
class TinyGguf final {
public:
    enum class Rotation {
        kPairs,   // (0, 1), (2, 3), ...: how architecture "llama" stores its heads
        kHalves,  // (0, n/2), (1, n/2 + 1), ...: "qwen2" and most others
    };

    std::string architecture = "llama";
    std::uint32_t weight_type = 0;  // ggml's number; F32, F16, Q4_0, Q8_0, Q4_K and Q6_K
    bool tied = false;
    bool with_bias = false;
    std::vector<float> rope_factors;
    Rotation rotation = Rotation::kPairs;

    static constexpr std::uint32_t kLayers = 2;
    static constexpr std::uint32_t kWidth = 256;
    static constexpr std::uint32_t kHeads = 4;
    static constexpr std::uint32_t kKvHeads = 2;
    static constexpr std::uint32_t kHeadSize = kWidth / kHeads;
    static constexpr std::uint32_t kVocab = 256;

    // Draws the weights; call after setting the members above. The writer can still be added to.
    GgufWriter build();

    // Logits of the last of `ids`.
    std::vector<double> reference(const std::vector<std::int64_t>& ids) const;

private:
    using Rows = std::vector<std::vector<double>>;

    void add(GgufWriter& writer, const std::string& name, std::uint64_t columns,
             std::uint64_t num_rows, bool quantised);
    void attention(const std::string& prefix, Rows& rows) const;
    void feed_forward(const std::string& prefix, Rows& rows) const;
    Rows linear(const Rows& rows, const std::string& name) const;
    Rows normed(const Rows& rows, const std::string& name) const;
    void rotate(std::vector<double>& row, std::size_t position) const;

    std::map<std::string, std::vector<double>> weights_;
    std::uint32_t seed_ = 1;
};

}  // namespace shardline
