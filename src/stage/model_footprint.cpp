#include <algorithm>
#include <memory>
#include <numeric>

#include "cut/cut.hpp"
#include "model/model_source.hpp"
#include "stage/footprint.hpp"
#include "stage/stage_loader.hpp"

namespace shardline {

ModelFootprint model_footprint(const std::filesystem::path& model_directory,
                               const StageSpec& spec) {
    const ModelSource source = ModelSource::open(model_directory);
    const LayerMap map = map_layers(source.read_graph());
    StageSpec layers_only = spec;
    layers_only.range = {{0, map.num_layers}, false, false};
    const std::shared_ptr<ov::Model> part = cut_part(source.read_graph(), layers_only.range);
    make_paged(part, layers_only.range);
    const StageFootprint all = part_footprint(*part, layers_only);

    ModelFootprint footprint;
    footprint.layer_kv_bytes_per_block = layer_kv_bytes_per_block(*part, spec.numeric);
    // Kernels hold weights in forms of their own; what all layers take that way is shared out by
    // what each takes in the file.
    const double in_files = static_cast<double>(
        std::accumulate(map.layer_weights_bytes.begin(), map.layer_weights_bytes.end(),
                        std::max<std::uint64_t>(1, map.shared_bytes)));
    const double growth = static_cast<double>(all.weights_bytes) / in_files;
    for (const std::uint64_t bytes : map.layer_weights_bytes) {
        footprint.layer_weights_bytes.push_back(
            static_cast<std::uint64_t>(static_cast<double>(bytes) * growth));
    }
    footprint.stage_overhead_bytes =
        all.reserve_bytes + all.activation_bytes +
        static_cast<std::uint64_t>(static_cast<double>(map.shared_bytes) * growth);
    return footprint;
}

}  // namespace shardline
