#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "model/byte_range.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// Parts of a .bin that a fingerprint looks at: fine-tunes of one model have the same graph and
// sizes, and hashing all weights would read them all at every start. A file of up to 1 MiB is
// taken whole, of a larger one 256 blocks of 4 KiB, evenly spread. Ascending, disjoint.
std::vector<ByteRange> fingerprint_samples(std::uint64_t bin_bytes);

// SHA-256 of the .xml's text followed by the samples, and the size of the .bin.
ModelFingerprint fingerprint_model(std::string_view xml, const std::filesystem::path& bin_file);

}  // namespace shardline
