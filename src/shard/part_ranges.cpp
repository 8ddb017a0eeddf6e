#include "shard/part_ranges.hpp"

#include "base/file.hpp"
#include "cut/cut.hpp"
#include "model/model_paths.hpp"
#include "model/model_source.hpp"
#include "shard/byte_ranges.hpp"

namespace shardline {

std::vector<ByteRange> basic_ranges_of(const std::filesystem::path& model_directory,
                                       std::uint64_t bin_bytes) {
    const std::filesystem::path file = model_directory / kModelXmlName;
    const std::string xml = read_text_file(file, kMaxModelXmlBytes);
    return basic_ranges(WeightMap::parse(xml, file.string(), bin_bytes), bin_bytes);
}

std::vector<ByteRange> needed_ranges_of(const std::filesystem::path& model_directory,
                                        const PartRange& range) {
    const ModelSource source = ModelSource::open(model_directory);
    return needed_ranges(source, cut_part(source.read_graph(), range));
}

}  // namespace shardline
