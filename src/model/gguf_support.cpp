#include "model/gguf_support.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.hpp"

namespace shardline {

namespace {

constexpr std::uint64_t kMaxCount = 1U << 16;  // layers, heads: far beyond any model
constexpr std::uint64_t kMaxWidth = 1U << 20;  // of rows

// What the front end of OpenVINO 2026.4 converts, found by trying: the library offers no list.
constexpr std::array<std::string_view, 21> kArchitectures = {
    "llama",   "qwen2",   "qwen3",    "qwen3moe",      "qwen35",      "phi3",         "minicpm",
    "gemma",   "gemma2",  "gemma3",   "gemma4",        "olmoe",       "glm4moe",      "exaone4",
    "smollm3", "gpt-oss", "mistral3", "hunyuan-dense", "hunyuan-moe", "ernie4_5-moe", "minimax-m2"};

constexpr std::array<std::string_view, 14> kWeightTypes = {"F32",  "F16",  "BF16", "Q4_0", "Q4_1",
                                                           "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K",
                                                           "Q4_K", "Q5_K", "Q6_K", "MXFP4"};

[[noreturn]] void unsupported(const std::string& what) {
    throw Error(ErrorCode::kUnsupported, what);
}

[[noreturn]] void corrupt(const std::string& what) {
    throw Error(ErrorCode::kCorrupt, what);
}

// Text of the file's, made fit for a message.
std::string shown(std::string_view text) {
    constexpr std::size_t kMaxShown = 80;
    std::string result(text.substr(0, kMaxShown));
    std::replace_if(
        result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return result;
}

void check_architecture(const GgufHeader& header) {
    const std::string_view architecture = header.architecture();
    if (std::find(kArchitectures.begin(), kArchitectures.end(), architecture) ==
        kArchitectures.end()) {
        unsupported(fmt::format("GGUF architecture '{}' is not supported; these are: {}",
                                shown(architecture), fmt::join(kArchitectures, ", ")));
    }
    if (const auto parts = header.number("split.count"); parts && *parts > 1) {
        unsupported(
            fmt::format("the file is one of {} parts of a GGUF model; join them first with "
                        "llama-gguf-split --merge",
                        *parts));
    }
}

// A key of the architecture's own that must be a count.
std::uint64_t required_count(const GgufHeader& header, std::string_view name, std::uint64_t max) {
    const std::string key = fmt::format("{}.{}", header.architecture(), name);
    if (header.metadata().count(key) == 0) {
        corrupt(fmt::format("GGUF key '{}' is missing", key));
    }
    const auto value = header.number(key);
    if (!value) {
        unsupported(fmt::format("GGUF key '{}' is not a single whole number", key));
    }
    if (*value == 0 || *value > max) {
        corrupt(fmt::format("GGUF key '{}' is {}, 1 to {} are possible", key, *value, max));
    }
    return *value;
}

std::uint64_t optional_count(const GgufHeader& header, std::string_view name,
                             std::uint64_t fallback, std::uint64_t max) {
    const std::string key = fmt::format("{}.{}", header.architecture(), name);
    return header.metadata().count(key) == 0 ? fallback : required_count(header, name, max);
}

void check_sizes(const GgufHeader& header) {
    const std::uint64_t num_layers = required_count(header, "block_count", kMaxCount);
    const std::uint64_t width = required_count(header, "embedding_length", kMaxWidth);
    const std::uint64_t num_heads = required_count(header, "attention.head_count", kMaxCount);
    const std::uint64_t num_kv_heads =
        optional_count(header, "attention.head_count_kv", num_heads, kMaxCount);
    if (num_kv_heads > num_heads || num_heads % num_kv_heads != 0) {
        corrupt(fmt::format("GGUF: {} attention heads cannot share {} key-value heads", num_heads,
                            num_kv_heads));
    }
    const std::uint64_t head_size = optional_count(
        header, "attention.key_length", std::max(width / num_heads, std::uint64_t{1}), kMaxWidth);
    const std::uint64_t rope_size =
        optional_count(header, "rope.dimension_count", head_size, kMaxWidth);
    if (rope_size > head_size || rope_size % 2 != 0) {
        corrupt(fmt::format("GGUF: rotary positions over {} of {} values of a head", rope_size,
                            head_size));
    }
    const auto embedding =
        std::find_if(header.tensors().begin(), header.tensors().end(),
                     [](const GgufTensor& tensor) { return tensor.name == "token_embd.weight"; });
    if (embedding == header.tensors().end()) {
        corrupt("GGUF tensor 'token_embd.weight' is missing");
    }
    if (embedding->dimensions.size() != 2 || embedding->dimensions[0] != width) {
        corrupt(
            fmt::format("GGUF tensor 'token_embd.weight' does not have rows of {} values, as "
                        "'embedding_length' says",
                        width));
    }
    for (const GgufTensor& tensor : header.tensors()) {
        constexpr std::string_view kPrefix = "blk.";
        std::uint64_t layer = 0;
        const char* end = tensor.name.data() + tensor.name.size();
        if (tensor.name.starts_with(kPrefix) &&
            std::from_chars(tensor.name.data() + kPrefix.size(), end, layer).ec == std::errc() &&
            layer >= num_layers) {
            corrupt(fmt::format("GGUF tensor '{}' lies beyond the {} layers of 'block_count'",
                                shown(tensor.name), num_layers));
        }
    }
}

void check_scaling(const GgufHeader& header) {
    const std::string prefix = std::string(header.architecture()) + ".rope.";
    const auto type = header.text(prefix + "scaling.type");
    if (type && *type != "none" && *type != "linear" && *type != "yarn") {
        unsupported(fmt::format("GGUF key '{}scaling.type': rope scaling '{}' is not supported",
                                prefix, shown(*type)));
    }
    for (const char* name : {"scaling.factor", "freq_base"}) {
        const auto value = header.real(prefix + name);
        if (header.metadata().count(prefix + name) != 0 &&
            (!value || !std::isfinite(*value) || *value <= 0.0)) {
            corrupt(fmt::format("GGUF key '{}{}' is not a positive number", prefix, name));
        }
    }
}

void check_tensor_types(const GgufHeader& header) {
    for (const GgufTensor& tensor : header.tensors()) {
        const std::string type = gguf_type_name(tensor.type);
        if (std::find(kWeightTypes.begin(), kWeightTypes.end(), type) == kWeightTypes.end()) {
            unsupported(
                fmt::format("GGUF tensor '{}' has the type {}, which is not supported; "
                            "these are: {}",
                            shown(tensor.name), type, fmt::join(kWeightTypes, ", ")));
        }
        if (tensor.name.starts_with("rope_factors_")) {
            unsupported(
                fmt::format("GGUF tensor '{}': rotary factors by context length are not "
                            "supported, and without them long prompts fall apart",
                            shown(tensor.name)));
        }
    }
}

}  // namespace

void require_importable(const GgufHeader& header) {
    check_architecture(header);
    check_sizes(header);
    check_scaling(header);
    check_tensor_types(header);
}

}  // namespace shardline
