#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/model_source.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// A standalone shard: a stateful graph that plain OpenVINO opens and runs, with what it is in
// shard.json:
//
//     DIR/stage-0/openvino_model.xml  openvino_model.bin  shard.json
//     DIR/stage-1/...
//
// Its inputs are those of the model plus the tensors of its first boundary ("boundary.K.J"), its
// outputs those of its last boundary or "logits".
struct WrittenShard {
    std::filesystem::path directory;
    PartRange range;
    std::uint64_t weights_bytes = 0;
};

// Called before each shard is written and once at the end: how many are done, of how many.
using ShardProgress = std::function<void(std::size_t done, std::size_t total)>;

// Writes one shard after the other, so that memory holds one graph at a time; weights are copied
// from the mapping. `ranges` must follow each other from the embedding to the head. A shard's
// directory appears when it is complete. Throws Error: kInvalidArgument for ranges that leave a
// gap, a stage directory that is there already or a place that cannot be written, and what cut_part
// throws.
std::vector<WrittenShard> write_shards(const ModelSource& source,
                                       const std::vector<PartRange>& ranges,
                                       const std::filesystem::path& directory,
                                       const ShardProgress& progress);

}  // namespace shardline
