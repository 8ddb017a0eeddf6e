#include "transport/wire_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "fleet.pb.h"
#include "transport/protocol.hpp"
#include "transport/wire_codec.hpp"

namespace shardline {
namespace {

constexpr std::size_t kMaxNodeBytes = 256;
constexpr std::size_t kMaxModelNameBytes = 256;
constexpr std::size_t kMaxSettingBytes = 256;
constexpr std::size_t kSha256HexDigits = 64;
constexpr std::uint32_t kMaxLayers = 4096;
constexpr std::uint32_t kMaxBlocks = 1U << 24;  // 512 Mi tokens
constexpr std::uint32_t kMaxStepRows = 1U << 16;
constexpr std::uint32_t kMaxContext = 1U << 26;

[[noreturn]] void refuse(const std::string& what) {
    throw Error(ErrorCode::kCorrupt, what);
}

std::string decode_text(const char* what, const std::string& text, std::size_t max_bytes) {
    if (text.size() > max_bytes) {
        refuse(fmt::format("{} has {} bytes, the limit is {}", what, text.size(), max_bytes));
    }
    return text;
}

std::uint32_t decode_count(const char* what, std::uint32_t count, std::uint32_t smallest,
                           std::uint32_t largest) {
    if (count < smallest || count > largest) {
        refuse(fmt::format("{} is {}, not within {} and {}", what, count, smallest, largest));
    }
    return count;
}

ModelFingerprint decode_fingerprint(const wire::ModelFingerprint& message) {
    const std::string& digest = message.xml_sha256();
    constexpr std::string_view kHex = "0123456789abcdef";
    if (digest.size() != kSha256HexDigits || digest.find_first_not_of(kHex) != std::string::npos) {
        refuse("a model's fingerprint is not a SHA-256");
    }
    return {digest, message.bin_bytes()};
}

PartRange decode_range(const wire::StageSpec& message) {
    PartRange range;
    range.layers.first = decode_count("the first layer", message.first_layer(), 0, kMaxLayers);
    range.layers.last = decode_count("the end of the layers", message.last_layer(),
                                     message.first_layer(), kMaxLayers);
    range.with_embedding = message.with_embedding();
    range.with_head = message.with_head();
    if (range.layers.size() == 0 && !range.with_embedding && !range.with_head) {
        refuse("a stage without layers, embedding and head");
    }
    return range;
}

}  // namespace

std::string build_version() {
    return SHARDLINE_VERSION;
}

void encode_hello(const PeerHello& hello, wire::Hello& message) {
    message.set_protocol_major(kProtocolMajor);
    message.set_protocol_minor(kProtocolMinor);
    message.set_build(build_version());
    message.set_node(wire_text(hello.node));
    message.set_session(hello.session);
    message.set_epoch(to_number(hello.epoch));
}

PeerHello decode_hello(const wire::Hello& message, const std::string& own_node) {
    if (message.protocol_major() != kProtocolMajor) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("'{}' speaks protocol {}.{} (build {}), '{}' speaks {}.{} (build "
                                "{}); install the same version on both",
                                message.node().substr(0, kMaxNodeBytes), message.protocol_major(),
                                message.protocol_minor(), message.build().substr(0, kMaxNodeBytes),
                                own_node, kProtocolMajor, kProtocolMinor, build_version()));
    }
    PeerHello hello;
    hello.node = decode_text("a node's name", message.node(), kMaxNodeBytes);
    hello.session = decode_text("a session", message.session(), kMaxNodeBytes);
    hello.epoch = Epoch{message.epoch()};
    return hello;
}

void encode_spec(const StageSpec& spec, wire::StageSpec& message) {
    message.set_model_name(wire_text(spec.model_name));
    message.mutable_fingerprint()->set_xml_sha256(spec.fingerprint.xml_sha256);
    message.mutable_fingerprint()->set_bin_bytes(spec.fingerprint.bin_bytes);
    message.set_first_layer(spec.range.layers.first);
    message.set_last_layer(spec.range.layers.last);
    message.set_with_embedding(spec.range.with_embedding);
    message.set_with_head(spec.range.with_head);
    wire::NumericSettings& numeric = *message.mutable_numeric();
    numeric.set_inference_precision(spec.numeric.inference_precision);
    numeric.set_kv_cache_precision(spec.numeric.kv_cache_precision);
    numeric.set_dynamic_quantization_group(spec.numeric.dynamic_quantization_group);
    message.set_device(spec.device);
    message.set_num_threads(spec.num_threads);
    message.set_num_blocks(spec.num_blocks);
    message.set_max_rows(spec.max_rows);
    message.set_max_context(spec.max_context);
    message.set_keeps_rows(spec.keeps_rows);
}

StageSpec decode_spec(const wire::StageSpec& message) {
    StageSpec spec;
    spec.model_name = decode_text("a model's name", message.model_name(), kMaxModelNameBytes);
    spec.fingerprint = decode_fingerprint(message.fingerprint());
    spec.range = decode_range(message);
    const wire::NumericSettings& numeric = message.numeric();
    spec.numeric.inference_precision =
        decode_text("a precision", numeric.inference_precision(), kMaxSettingBytes);
    spec.numeric.kv_cache_precision =
        decode_text("a precision", numeric.kv_cache_precision(), kMaxSettingBytes);
    spec.numeric.dynamic_quantization_group = numeric.dynamic_quantization_group();
    spec.device = decode_text("a device", message.device(), kMaxSettingBytes);
    spec.num_threads = decode_count("the number of threads", message.num_threads(), 0, 4096);
    spec.num_blocks = decode_count("the number of KV blocks", message.num_blocks(), 1, kMaxBlocks);
    spec.max_rows = decode_count("the largest step", message.max_rows(), 1, kMaxStepRows);
    spec.max_context = decode_count("the longest sequence", message.max_context(), 1, kMaxContext);
    spec.keeps_rows = message.keeps_rows();
    return spec;
}

void encode_effective(const EffectiveSettings& settings, wire::EffectiveSettings& message) {
    message.set_device(wire_text(settings.device));
    message.set_inference_precision(wire_text(settings.inference_precision));
    message.set_kv_cache_precision(wire_text(settings.kv_cache_precision));
    message.set_dynamic_quantization_group(settings.dynamic_quantization_group);
    message.set_runtime(wire_text(settings.runtime));
    message.set_num_threads(settings.num_threads);
}

EffectiveSettings decode_effective(const wire::EffectiveSettings& message) {
    EffectiveSettings settings;
    settings.device = decode_text("a device", message.device(), kMaxSettingBytes);
    settings.inference_precision =
        decode_text("a precision", message.inference_precision(), kMaxSettingBytes);
    settings.kv_cache_precision =
        decode_text("a precision", message.kv_cache_precision(), kMaxSettingBytes);
    settings.dynamic_quantization_group = message.dynamic_quantization_group();
    settings.runtime = decode_text("a runtime", message.runtime(), kMaxSettingBytes);
    settings.num_threads = message.num_threads();
    return settings;
}

}  // namespace shardline
