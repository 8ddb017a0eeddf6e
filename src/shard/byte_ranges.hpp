#pragma once

#include <cstdint>
#include <memory>
#include <openvino/openvino.hpp>
#include <vector>

#include "model/model_source.hpp"

namespace shardline {

// The bytes of openvino_model.bin that a part of a model needs, merged and ascending: its constants
// and what every part needs (basic_ranges). `part` is a graph of `source`, or cut from one.
std::vector<ByteRange> needed_ranges(const ModelSource& source,
                                     const std::shared_ptr<ov::Model>& part);

// The bytes without which no part of the model can be opened and cut: the small constants of the
// whole model, whose values shape inference reads, and the samples of the fingerprint. Known from
// the .xml alone.
std::vector<ByteRange> basic_ranges(const WeightMap& map, std::uint64_t bin_bytes);

}  // namespace shardline
