#include "stage/device_settings.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

namespace {

ov::element::Type precision_named(const std::string& name, const char* setting,
                                  const std::vector<ov::element::Type>& known) {
    for (const ov::element::Type& type : known) {
        if (type.get_type_name() == name) {
            return type;
        }
    }
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} '{}' is not known", setting, name));
}

bool is_supported(const ov::CompiledModel& compiled, const std::string& name) {
    const auto supported = compiled.get_property(ov::supported_properties);
    return std::find(supported.begin(), supported.end(), name) != supported.end();
}

// Properties outside the public headers, as text; empty where a device does not know them.
std::string text_property(const ov::CompiledModel& compiled, const std::string& name) {
    return is_supported(compiled, name) ? compiled.get_property(name).as<std::string>() : "";
}

void expect(const char* setting, const std::string& wanted, const std::string& got,
            const std::string& device) {
    if (wanted != got) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("device {} runs with {} {} where {} is asked for; use a device "
                                "that can, or choose settings that all devices share",
                                device, setting, got.empty() ? "unknown" : got, wanted));
    }
}

}  // namespace

ov::AnyMap compile_settings(const StageSpec& spec) {
    const NumericSettings& numeric = spec.numeric;
    const auto inference = precision_named(numeric.inference_precision, "inference precision",
                                           {ov::element::f32, ov::element::f16, ov::element::bf16});
    const auto kv = precision_named(numeric.kv_cache_precision, "KV cache precision",
                                    {ov::element::u8, ov::element::f16, ov::element::f32});
    ov::AnyMap settings = {
        ov::hint::performance_mode(ov::hint::PerformanceMode::LATENCY),
        ov::hint::inference_precision(inference),
        ov::hint::kv_cache_precision(kv),
        ov::hint::dynamic_quantization_group_size(numeric.dynamic_quantization_group),
    };
    if (kv == ov::element::u8) {
        // By channel, the device's own choice, a later token rescales earlier ones.
        settings["KEY_CACHE_QUANT_MODE"] = "BY_TOKEN";
    }
    if (spec.num_threads > 0) {
        settings.insert(ov::inference_num_threads(static_cast<std::int32_t>(spec.num_threads)));
    }
    if (spec.device == "CPU") {
        // Several workers on one host would all pin their threads to the same first cores.
        settings.insert(ov::hint::enable_cpu_pinning(false));
    }
    return settings;
}

EffectiveSettings effective_settings(const ov::CompiledModel& compiled) {
    EffectiveSettings effective;
    for (const std::string& device : compiled.get_property(ov::execution_devices)) {
        effective.device += effective.device.empty() ? device : "," + device;
    }
    const auto precision = [&](const auto& property) {
        return is_supported(compiled, property.name())
                   ? compiled.get_property(property).get_type_name()
                   : std::string();
    };
    effective.inference_precision = precision(ov::hint::inference_precision);
    effective.kv_cache_precision = precision(ov::hint::kv_cache_precision);
    if (is_supported(compiled, ov::hint::dynamic_quantization_group_size.name())) {
        effective.dynamic_quantization_group =
            compiled.get_property(ov::hint::dynamic_quantization_group_size);
    }
    if (is_supported(compiled, ov::inference_num_threads.name())) {
        effective.num_threads =
            static_cast<std::uint32_t>(compiled.get_property(ov::inference_num_threads));
    }
    effective.runtime = text_property(compiled, "RUNTIME_REQUIREMENTS");
    return effective;
}

void check_honoured(const EffectiveSettings& effective, const NumericSettings& wanted) {
    expect("inference precision", wanted.inference_precision, effective.inference_precision,
           effective.device);
    expect("KV cache precision", wanted.kv_cache_precision, effective.kv_cache_precision,
           effective.device);
    expect("dynamic quantisation group", std::to_string(wanted.dynamic_quantization_group),
           std::to_string(effective.dynamic_quantization_group), effective.device);
}

}  // namespace shardline
