#include "step/stage_spec.hpp"

#include <fmt/format.h>

namespace shardline {

std::string to_string(const PartRange& range) {
    std::string text = range.with_embedding ? "embed" : "";
    const auto append = [&text](const std::string& piece) {
        text += text.empty() ? piece : "+" + piece;
    };
    if (range.layers.size() > 0) {
        append(fmt::format("{}-{}", range.layers.first, range.layers.last));
    }
    if (range.with_head) {
        append("head");
    }
    return text;
}

namespace {

template <typename Value>
std::string differs(const char* what, const Value& one, const Value& other) {
    return fmt::format("{} is {} on one stage and {} on another", what, one, other);
}

}  // namespace

std::string difference(const EffectiveSettings& one, const EffectiveSettings& other) {
    if (one.inference_precision != other.inference_precision) {
        return differs("inference precision", one.inference_precision, other.inference_precision);
    }
    if (one.kv_cache_precision != other.kv_cache_precision) {
        return differs("KV cache precision", one.kv_cache_precision, other.kv_cache_precision);
    }
    if (one.dynamic_quantization_group != other.dynamic_quantization_group) {
        return differs("dynamic quantisation group", one.dynamic_quantization_group,
                       other.dynamic_quantization_group);
    }
    return {};
}

std::string kernel_difference(const EffectiveSettings& one, const EffectiveSettings& other) {
    if (one.device != other.device) {
        return differs("device", one.device, other.device);
    }
    return one.runtime != other.runtime ? differs("runtime", one.runtime, other.runtime)
                                        : std::string();
}

std::string to_string(const EffectiveSettings& settings) {
    return fmt::format("{}, {}, KV {} by token, dynamic quantisation group {}, {} threads, {}",
                       settings.device, settings.inference_precision, settings.kv_cache_precision,
                       settings.dynamic_quantization_group, settings.num_threads, settings.runtime);
}

}  // namespace shardline
