#include "unit/model/tiny_gguf.hpp"

#include <algorithm>
#include <cmath>
#include <openvino/core/type/float16.hpp>
#include <random>
#include <stdexcept>

namespace shardline {

namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kRopeBase = 10000.0;

enum TensorType : std::uint32_t { kF32 = 0, kF16 = 1, kQ40 = 2, kQ80 = 8, kQ4K = 12, kQ6K = 14 };

std::string half(float value) {
    return GgufWriter::number(ov::float16(value).to_bits());
}

// Blocks of random content, as the format defines them: `bytes` for the file, `values` for us.
// Scales are powers of two, so that nothing is lost in f16.
struct RandomBlocks {
    std::mt19937& random;
    std::string bytes;
    std::vector<double> values;

    std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); }

    void f32() {
        const auto value = static_cast<float>(static_cast<double>(draw(2001)) / 10000.0 - 0.1);
        bytes += GgufWriter::number(value);
        values.push_back(value);
    }

    void f16() {
        const ov::float16 value(
            static_cast<float>(static_cast<double>(draw(2001)) / 10000.0 - 0.1));
        bytes += GgufWriter::number(value.to_bits());
        values.push_back(static_cast<float>(value));
    }

    // 32 values: scale, then 4 bits each around 8; low bits first half, high bits second half.
    void q4_0() {
        bytes += half(1.0F / 64);
        std::vector<double> second;
        for (int i = 0; i < 16; ++i) {
            const std::uint32_t low = draw(16);
            const std::uint32_t high = draw(16);
            bytes += static_cast<char>(low | high << 4U);
            values.push_back((static_cast<double>(low) - 8.0) / 64);
            second.push_back((static_cast<double>(high) - 8.0) / 64);
        }
        values.insert(values.end(), second.begin(), second.end());
    }

    // 32 values: scale, then 8 bits each, signed.
    void q8_0() {
        bytes += half(1.0F / 1024);
        for (int i = 0; i < 32; ++i) {
            const auto value = static_cast<std::int8_t>(draw(255));
            bytes += static_cast<char>(value);
            values.push_back(value / 1024.0);
        }
    }

    // 256 values in 8 groups: two f16 factors, 12 bytes of 6-bit scales and minima, 4 bits each.
    // Minima are whole multiples of their scale: the front end rounds them to such.
    void q4_k() {
        constexpr double kUnit = 1.0 / 1024;
        bytes += half(static_cast<float>(kUnit)) + half(static_cast<float>(kUnit));
        std::vector<std::uint32_t> scales;
        std::vector<std::uint32_t> minima;
        for (int group = 0; group < 8; ++group) {
            scales.push_back(1 + draw(4));
            minima.push_back(scales.back() * (5 + draw(6)));
        }
        for (int i = 0; i < 4; ++i) {
            bytes += static_cast<char>(scales[i] | (scales[i + 4] >> 4U) << 6U);
        }
        for (int i = 0; i < 4; ++i) {
            bytes += static_cast<char>(minima[i] | (minima[i + 4] >> 4U) << 6U);
        }
        for (int i = 4; i < 8; ++i) {
            bytes += static_cast<char>((scales[i] & 15U) | (minima[i] & 15U) << 4U);
        }
        for (int pair = 0; pair < 4; ++pair) {
            std::vector<double> second;
            for (int i = 0; i < 32; ++i) {
                const std::uint32_t low = draw(16);
                const std::uint32_t high = draw(16);
                bytes += static_cast<char>(low | high << 4U);
                const auto value = [&](int group, std::uint32_t quant) {
                    return kUnit * (static_cast<double>(scales[group] * quant) -
                                    static_cast<double>(minima[group]));
                };
                values.push_back(value(2 * pair, low));
                second.push_back(value(2 * pair + 1, high));
            }
            values.insert(values.end(), second.begin(), second.end());
        }
    }

    // 256 values: low 4 bits, high 2 bits, 16 signed scales, one f16 factor.
    void q6_k() {
        constexpr double kUnit = 1.0 / 4096;
        std::vector<std::uint32_t> quants(256);
        std::generate(quants.begin(), quants.end(), [&] { return draw(64); });
        std::string low(128, '\0');
        std::string high(64, '\0');
        for (std::size_t half_of = 0; half_of < 2; ++half_of) {
            const std::uint32_t* part = quants.data() + 128 * half_of;
            for (std::size_t i = 0; i < 32; ++i) {
                low[64 * half_of + i] =
                    static_cast<char>((part[i] & 15U) | (part[i + 64] & 15U) << 4U);
                low[64 * half_of + i + 32] =
                    static_cast<char>((part[i + 32] & 15U) | (part[i + 96] & 15U) << 4U);
                high[32 * half_of + i] =
                    static_cast<char>(part[i] >> 4U | (part[i + 32] >> 4U) << 2U |
                                      (part[i + 64] >> 4U) << 4U | (part[i + 96] >> 4U) << 6U);
            }
        }
        bytes += low + high;
        std::vector<int> scales;
        for (int i = 0; i < 16; ++i) {
            scales.push_back(static_cast<int>(draw(17)) - 8);
            bytes += static_cast<char>(scales.back());
        }
        bytes += half(static_cast<float>(kUnit));
        for (std::size_t i = 0; i < quants.size(); ++i) {
            values.push_back(kUnit * scales[i / 16] * (static_cast<double>(quants[i]) - 32.0));
        }
    }

    void fill(std::uint32_t type, std::uint64_t count) {
        while (values.size() < count) {
            switch (type) {
                case kF32: f32(); break;
                case kF16: f16(); break;
                case kQ40: q4_0(); break;
                case kQ80: q8_0(); break;
                case kQ4K: q4_k(); break;
                case kQ6K: q6_k(); break;
                default: throw std::invalid_argument("no such type here");
            }
        }
    }
};

}  // namespace

void TinyGguf::add(GgufWriter& writer, const std::string& name, std::uint64_t columns,
                   std::uint64_t num_rows, bool quantised) {
    std::mt19937 random(seed_++);
    RandomBlocks blocks{random, {}, {}};
    const std::uint32_t type = quantised ? weight_type : kF32;
    blocks.fill(type, columns * num_rows);
    std::vector<std::uint64_t> dimensions = {columns};
    if (num_rows > 1) {
        dimensions.push_back(num_rows);
    }
    writer.tensor(name, dimensions, type, blocks.bytes);
    weights_[name] = blocks.values;
}

GgufWriter TinyGguf::build() {
    GgufWriter writer;
    const std::string prefix = architecture + ".";
    writer.text("general.architecture", architecture);
    writer.text("general.name", "Tiny");
    writer.u32(prefix + "context_length", 512);
    writer.u32(prefix + "embedding_length", kWidth);
    writer.u32(prefix + "block_count", kLayers);
    writer.u32(prefix + "feed_forward_length", kWidth);
    writer.u32(prefix + "attention.head_count", kHeads);
    writer.u32(prefix + "attention.head_count_kv", kKvHeads);
    writer.f32(prefix + "attention.layer_norm_rms_epsilon", static_cast<float>(kEpsilon));
    writer.f32(prefix + "rope.freq_base", static_cast<float>(kRopeBase));
    writer.text("tokenizer.ggml.model", "gpt2");
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types(kVocab, 1);
    for (std::uint32_t id = 0; id < kVocab; ++id) {
        tokens.push_back("t" + std::to_string(id));
    }
    tokens[7] = "<|im_end|>";
    types[7] = 3;
    tokens[8] = "</s>";  // text like a control token's, but an ordinary token
    writer.texts("tokenizer.ggml.tokens", tokens);
    writer.i32s("tokenizer.ggml.token_type", types);
    writer.u32("tokenizer.ggml.eos_token_id", 2);

    add(writer, "token_embd.weight", kWidth, kVocab, true);
    add(writer, "output_norm.weight", kWidth, 1, false);
    if (!tied) {
        add(writer, "output.weight", kWidth, kVocab, true);
    }
    if (!rope_factors.empty()) {
        std::string bytes;
        for (const float factor : rope_factors) {
            bytes += GgufWriter::number(factor);
        }
        writer.tensor("rope_freqs.weight", {rope_factors.size()}, kF32, bytes);
    }
    constexpr std::uint32_t kKvWidth = kHeadSize * kKvHeads;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        const std::string block = "blk." + std::to_string(layer) + ".";
        add(writer, block + "attn_norm.weight", kWidth, 1, false);
        add(writer, block + "ffn_norm.weight", kWidth, 1, false);
        add(writer, block + "attn_q.weight", kWidth, kWidth, true);
        add(writer, block + "attn_k.weight", kWidth, kKvWidth, true);
        add(writer, block + "attn_v.weight", kWidth, kKvWidth, true);
        add(writer, block + "attn_output.weight", kWidth, kWidth, true);
        add(writer, block + "ffn_gate.weight", kWidth, kWidth, true);
        add(writer, block + "ffn_up.weight", kWidth, kWidth, true);
        add(writer, block + "ffn_down.weight", kWidth, kWidth, true);
        if (with_bias) {
            add(writer, block + "attn_q.bias", kWidth, 1, false);
            add(writer, block + "attn_k.bias", kKvWidth, 1, false);
            add(writer, block + "attn_v.bias", kKvWidth, 1, false);
        }
    }
    return writer;
}

TinyGguf::Rows TinyGguf::linear(const Rows& rows, const std::string& name) const {
    const std::vector<double>& weight = weights_.at(name + ".weight");
    const auto bias = weights_.find(name + ".bias");
    Rows result;
    for (const auto& row : rows) {
        std::vector<double> out(weight.size() / row.size());
        for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] = bias == weights_.end() ? 0.0 : bias->second[i];
            for (std::size_t j = 0; j < row.size(); ++j) {
                out[i] += weight[i * row.size() + j] * row[j];
            }
        }
        result.push_back(std::move(out));
    }
    return result;
}

TinyGguf::Rows TinyGguf::normed(const Rows& rows, const std::string& name) const {
    const std::vector<double>& weight = weights_.at(name + ".weight");
    Rows result = rows;
    for (auto& row : result) {
        double sum = 0.0;
        for (const double value : row) {
            sum += value * value;
        }
        const double scale = 1.0 / std::sqrt(sum / static_cast<double>(row.size()) + kEpsilon);
        for (std::size_t i = 0; i < row.size(); ++i) {
            row[i] *= scale * weight[i];
        }
    }
    return result;
}

void TinyGguf::rotate(std::vector<double>& row, std::size_t position) const {
    constexpr std::size_t kHalf = kHeadSize / 2;
    for (std::size_t head = 0; head < row.size() / kHeadSize; ++head) {
        double* values = row.data() + head * kHeadSize;
        for (std::size_t i = 0; i < kHalf; ++i) {
            const double factor = rope_factors.empty() ? 1.0 : double{rope_factors[i]};
            const double angle = static_cast<double>(position) / factor *
                                 std::pow(kRopeBase, -static_cast<double>(i) / kHalf);
            double& one = rotation == Rotation::kPairs ? values[2 * i] : values[i];
            double& other = rotation == Rotation::kPairs ? values[2 * i + 1] : values[i + kHalf];
            const double before = one;
            one = before * std::cos(angle) - other * std::sin(angle);
            other = before * std::sin(angle) + other * std::cos(angle);
        }
    }
}

void TinyGguf::attention(const std::string& prefix, Rows& rows) const {
    const Rows input = normed(rows, prefix + "attn_norm");
    Rows query = linear(input, prefix + "attn_q");
    Rows key = linear(input, prefix + "attn_k");
    const Rows value = linear(input, prefix + "attn_v");
    Rows mixed(rows.size(), std::vector<double>(kWidth, 0.0));
    for (std::size_t position = 0; position < rows.size(); ++position) {
        rotate(query[position], position);
        rotate(key[position], position);
        for (std::size_t head = 0; head < kHeads; ++head) {
            const std::size_t kv = head / (kHeads / kKvHeads) * kHeadSize;
            std::vector<double> weight(position + 1, 0.0);
            double sum = 0.0;
            for (std::size_t past = 0; past <= position; ++past) {
                double product = 0.0;
                for (std::size_t i = 0; i < kHeadSize; ++i) {
                    product += query[position][head * kHeadSize + i] * key[past][kv + i];
                }
                weight[past] = std::exp(product / std::sqrt(double{kHeadSize}));
                sum += weight[past];
            }
            for (std::size_t past = 0; past <= position; ++past) {
                for (std::size_t i = 0; i < kHeadSize; ++i) {
                    mixed[position][head * kHeadSize + i] +=
                        weight[past] / sum * value[past][kv + i];
                }
            }
        }
    }
    const Rows out = linear(mixed, prefix + "attn_output");
    for (std::size_t position = 0; position < rows.size(); ++position) {
        for (std::size_t i = 0; i < kWidth; ++i) {
            rows[position][i] += out[position][i];
        }
    }
}

void TinyGguf::feed_forward(const std::string& prefix, Rows& rows) const {
    const Rows input = normed(rows, prefix + "ffn_norm");
    Rows gate = linear(input, prefix + "ffn_gate");
    const Rows up = linear(input, prefix + "ffn_up");
    for (std::size_t position = 0; position < rows.size(); ++position) {
        for (std::size_t i = 0; i < gate[position].size(); ++i) {
            double& value = gate[position][i];
            value = value / (1.0 + std::exp(-value)) * up[position][i];
        }
    }
    const Rows out = linear(gate, prefix + "ffn_down");
    for (std::size_t position = 0; position < rows.size(); ++position) {
        for (std::size_t i = 0; i < kWidth; ++i) {
            rows[position][i] += out[position][i];
        }
    }
}

std::vector<double> TinyGguf::reference(const std::vector<std::int64_t>& ids) const {
    const std::vector<double>& embedding = weights_.at("token_embd.weight");
    Rows rows;
    for (const std::int64_t id : ids) {
        const auto first = embedding.begin() + id * std::int64_t{kWidth};
        rows.emplace_back(first, first + kWidth);
    }
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        const std::string prefix = "blk." + std::to_string(layer) + ".";
        attention(prefix, rows);
        feed_forward(prefix, rows);
    }
    const Rows last = normed({rows.back()}, "output_norm");
    return linear(last, tied ? "token_embd" : "output").front();
}

}  // namespace shardline
