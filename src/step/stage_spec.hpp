#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace shardline {

// Which part of a model a stage runs. The first part starts at the token ids (with_embedding),
// the last ends at the logits (with_head); layers may be empty for an end on its own.
//
//     embedding | layer 0 | layer 1 | ... | layer n-1 | head
struct PartRange {
    LayerRange layers;
    bool with_embedding = false;
    bool with_head = false;

    bool operator==(const PartRange&) const = default;
};

std::string to_string(const PartRange& range);  // "embed+0-15", "15-30", "head", ...

// Numeric choices, made once for the fleet by the coordinator; a stage that cannot honour them
// refuses to load, because bits would differ (docs/decisions). Names and values are OpenVINO's.
struct NumericSettings {
    std::string inference_precision = "f32";        // ov::hint::inference_precision
    std::string kv_cache_precision = "u8";          // u8 (keys by token), f16 or f32
    std::uint32_t dynamic_quantization_group = 32;  // 0 turns it off

    bool operator==(const NumericSettings&) const = default;
};

// What a compiled part really runs with, read back from the device. Stages of one chain must agree
// in all but the number of threads, which changes no bit.
struct EffectiveSettings {
    std::string device;               // "CPU", ...
    std::string inference_precision;  // "f32"
    std::string kv_cache_precision;   // "u8"
    std::uint64_t dynamic_quantization_group = 0;
    std::string runtime;  // version and instruction set; other kernels may give other bits
    std::uint32_t num_threads = 0;
};

// What was decided for the fleet and is not the same on two stages, in one sentence; empty when
// all is. Such stages are not run together.
std::string difference(const EffectiveSettings& one, const EffectiveSettings& other);

// Another device or instruction set: allowed, as fleets are mixed, but its kernels may round
// differently, so that the bits are those of this fleet and not those of one machine alone.
std::string kernel_difference(const EffectiveSettings& one, const EffectiveSettings& other);
std::string to_string(const EffectiveSettings& settings);

// The identity of a model's files: what must be the same on every stage.
struct ModelFingerprint {
    std::string xml_sha256;  // hex; of the XML and of samples of the weights
    std::uint64_t bin_bytes = 0;

    bool operator==(const ModelFingerprint&) const = default;
};

// Everything a host needs to know to become a stage.
struct StageSpec {
    std::string model_name;
    ModelFingerprint fingerprint;
    PartRange range;
    NumericSettings numeric;
    std::string device = "CPU";
    std::uint32_t num_threads = 0;  // 0: the device's default
    std::uint32_t num_blocks = 0;   // KV pool, spare block included
    std::uint32_t max_rows = 0;     // largest step
    std::uint32_t max_context = 0;  // longest sequence

    // Rows not kept end here: set for the last stage before the coordinator's head. A part with
    // the head always keeps only its rows; then this changes nothing.
    bool keeps_rows = false;
};

}  // namespace shardline
