#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <openvino/openvino.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/byte_range.hpp"

namespace shardline {

// Where the weights of a model lie in its .bin, read from its .xml alone: constants keep their
// names from file to graph, and in parts cut from it. Several constants may share one range (tied
// weights, equal constants). Immutable.
class WeightMap final {
public:
    // `xml` is the text of an openvino_model.xml, `file_name` is for messages. Throws
    // Error(kCorrupt) when it does not parse, is no IR, or names a range beyond `bin_bytes`.
    static WeightMap parse(std::string_view xml, const std::string& file_name,
                           std::uint64_t bin_bytes);

    // Every constant of every graph in the file, by layer name, bodies of loops included.
    const std::multimap<std::string, ByteRange>& constants() const { return constants_; }

    // End of the last range: how large the .bin must be at least.
    std::uint64_t end() const { return end_; }

    // Ranges of the constants of at most `max_bytes` each. Shapes, axes and scalars have to be
    // present before a graph is read at all, as shape inference looks at their values.
    std::vector<ByteRange> small_ranges(std::uint64_t max_bytes) const;

private:
    std::multimap<std::string, ByteRange> constants_;
    std::uint64_t end_ = 0;
};

// Constants up to this size are part of every shard: far more than any shape, far less than the
// scales of a quantised matrix.
inline constexpr std::uint64_t kSmallConstantBytes = 4096;

// Ranges of the constants that `part` holds, one for each of them, unsorted. `part` is a graph
// read from the model's files or cut from one; constants made since then (by passes) have no
// range and none is reported for them.
std::vector<ByteRange> weight_ranges(const WeightMap& map, const std::shared_ptr<ov::Model>& part);

}  // namespace shardline
