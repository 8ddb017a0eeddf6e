#include "shard/byte_ranges.hpp"

#include "model/fingerprint.hpp"
#include "shard/range_algebra.hpp"

namespace shardline {

std::vector<ByteRange> needed_ranges(const ModelSource& source,
                                     const std::shared_ptr<ov::Model>& part) {
    std::vector<ByteRange> ranges = weight_ranges(source.weight_map(), part);
    const std::vector<ByteRange> basic =
        basic_ranges(source.weight_map(), source.fingerprint().bin_bytes);
    ranges.insert(ranges.end(), basic.begin(), basic.end());
    return merged(std::move(ranges));
}

std::vector<ByteRange> basic_ranges(const WeightMap& map, std::uint64_t bin_bytes) {
    std::vector<ByteRange> ranges = map.small_ranges(kSmallConstantBytes);
    const std::vector<ByteRange> samples = fingerprint_samples(bin_bytes);
    ranges.insert(ranges.end(), samples.begin(), samples.end());
    return merged(std::move(ranges));
}

}  // namespace shardline
