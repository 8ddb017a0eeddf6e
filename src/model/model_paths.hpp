#pragma once

#include <cstdint>

namespace shardline {

// Names and limits of the files of a model directory.
inline constexpr const char* kModelXmlName = "openvino_model.xml";
inline constexpr const char* kModelBinName = "openvino_model.bin";

// The largest published graphs have some 20 MB.
inline constexpr std::uint64_t kMaxModelXmlBytes = std::uint64_t{256} << 20;

}  // namespace shardline
