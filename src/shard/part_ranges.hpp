#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "model/byte_range.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// What of openvino_model.bin a host has to hold, found in a model directory that may hold little
// more than the .xml yet. As byte_ranges.hpp, for rooms that see no graphs.

// Needs the .xml alone. Throws Error(kCorrupt) when it is not the graph of a model whose weights
// have `bin_bytes`.
std::vector<ByteRange> basic_ranges_of(const std::filesystem::path& model_directory,
                                       std::uint64_t bin_bytes);

// Needs the .xml and the basic ranges. Throws Error when the part cannot be cut.
std::vector<ByteRange> needed_ranges_of(const std::filesystem::path& model_directory,
                                        const PartRange& range);

}  // namespace shardline
