#include "stage/device_settings.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace shardline {
namespace {

// openvinotoolkit/openvino#32444: workers on one host would all pin to the same first cores.
TEST(DeviceSettings, ThreadsAreNotPinned) {
    StageSpec spec;
    spec.num_threads = 3;
    const ov::AnyMap settings = compile_settings(spec);
    EXPECT_FALSE(settings.at(ov::hint::enable_cpu_pinning.name()).as<bool>());
    EXPECT_EQ(settings.at(ov::inference_num_threads.name()).as<std::int32_t>(), 3);
}

// Each setting goes its own way, so that one lost on a device is noticed.
TEST(DeviceSettings, ASettingTheDeviceDoesNotTakeOverIsAnError) {
    const NumericSettings wanted;
    EffectiveSettings honoured{.device = "CPU",
                               .inference_precision = wanted.inference_precision,
                               .kv_cache_precision = wanted.kv_cache_precision,
                               .dynamic_quantization_group = wanted.dynamic_quantization_group,
                               .runtime = "any",
                               .num_threads = 1};
    EXPECT_NO_THROW(check_honoured(honoured, wanted));
    EffectiveSettings half = honoured;
    half.inference_precision = "f16";
    EXPECT_THROW(check_honoured(half, wanted), Error);
    EffectiveSettings wide = honoured;
    wide.kv_cache_precision = "f32";
    EXPECT_THROW(check_honoured(wide, wanted), Error);
    EffectiveSettings plain = honoured;
    plain.dynamic_quantization_group = 0;
    EXPECT_THROW(check_honoured(plain, wanted), Error);
}

TEST(DeviceSettings, KeysAreQuantisedByTokenOnlyWhereTheyAreQuantised) {
    StageSpec spec;
    EXPECT_EQ(compile_settings(spec).at("KEY_CACHE_QUANT_MODE").as<std::string>(), "BY_TOKEN");
    spec.numeric.kv_cache_precision = "f32";
    EXPECT_EQ(compile_settings(spec).count("KEY_CACHE_QUANT_MODE"), 0U);
}

}  // namespace
}  // namespace shardline
