#include "cut/shard_writer.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <openvino/pass/serialize.hpp>
#include <system_error>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cut/cut.hpp"
#include "cut/data_flow.hpp"
#include "model/model_paths.hpp"
#include "model/openvino_error.hpp"

namespace shardline {

namespace fs = std::filesystem;

namespace {

constexpr const char* kShardJsonName = "shard.json";
constexpr int kShardFormat = 1;

fs::path stage_directory(const fs::path& directory, std::size_t stage) {
    return directory / fmt::format("stage-{}", stage);
}

void check_ranges(const std::vector<PartRange>& ranges, std::uint32_t num_layers) {
    std::uint32_t next = 0;
    bool fits = !ranges.empty();
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        const PartRange& range = ranges[i];
        fits =
            fits && range.with_embedding == (i == 0) && range.with_head == (i + 1 == ranges.size());
        if (range.layers.size() > 0) {
            fits = fits && range.layers.first == next;
            next = range.layers.last;
        }
    }
    if (!fits || next != num_layers) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("the shards must follow each other from the embedding over layers "
                                "0 to {} to the head",
                                num_layers));
    }
}

nlohmann::json describe(const ov::Node& port) {
    return {{"name", port_name(port)},
            {"type", port.get_output_element_type(0).get_type_name()},
            {"shape", port.get_output_partial_shape(0).to_string()}};
}

nlohmann::json describe_shard(const ModelSource& source, const ov::Model& part,
                              const PartRange& range, std::size_t stage, std::size_t num_stages) {
    nlohmann::json inputs = nlohmann::json::array();
    for (const auto& parameter : part.get_parameters()) {
        inputs.push_back(describe(*parameter));
    }
    nlohmann::json outputs = nlohmann::json::array();
    for (const auto& result : part.get_results()) {
        outputs.push_back(describe(*result));
    }
    return {{"format", kShardFormat},
            {"model", source.info().name},
            {"fingerprint",
             {{"xml_sha256", source.fingerprint().xml_sha256},
              {"bin_bytes", source.fingerprint().bin_bytes}}},
            {"stage", stage},
            {"stages", num_stages},
            {"range",
             {{"first_layer", range.layers.first},
              {"last_layer", range.layers.last},
              {"with_embedding", range.with_embedding},
              {"with_head", range.with_head}}},
            {"inputs", std::move(inputs)},
            {"outputs", std::move(outputs)}};
}

void write_json(const fs::path& file, const nlohmann::json& json) {
    std::ofstream out(file);
    out << json.dump(2) << '\n';
    if (!out.flush()) {
        throw Error(ErrorCode::kInvalidArgument, fmt::format("cannot write {}", file.string()));
    }
}

WrittenShard write_shard(const ModelSource& source, const PartRange& range, std::size_t stage,
                         std::size_t num_stages, const fs::path& directory) {
    // Written beside its place and renamed, so that a shard that is there is whole.
    const fs::path unfinished = fs::path(directory).concat(".unfinished");
    fs::remove_all(unfinished);
    fs::create_directories(unfinished);
    const auto part = cut_part(source.read_graph(), range);
    ov::pass::Serialize(unfinished / kModelXmlName, unfinished / kModelBinName).run_on_model(part);
    write_json(unfinished / kShardJsonName,
               describe_shard(source, *part, range, stage, num_stages));
    const std::uint64_t bytes = fs::file_size(unfinished / kModelBinName);
    fs::rename(unfinished, directory);
    return {directory, range, bytes};
}

void check_places(const fs::path& directory, std::size_t num_stages) {
    for (std::size_t stage = 0; stage < num_stages; ++stage) {
        if (const fs::path place = stage_directory(directory, stage); fs::exists(place)) {
            throw Error(ErrorCode::kInvalidArgument,
                        fmt::format("{} is there already; name another directory or remove it",
                                    place.string()));
        }
    }
}

}  // namespace

std::vector<WrittenShard> write_shards(const ModelSource& source,
                                       const std::vector<PartRange>& ranges,
                                       const fs::path& directory, const ShardProgress& progress) {
    check_ranges(ranges, source.info().num_layers);
    check_places(directory, ranges.size());
    std::vector<WrittenShard> written;
    try {
        for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
            progress(stage, ranges.size());
            written.push_back(write_shard(source, ranges[stage], stage, ranges.size(),
                                          stage_directory(directory, stage)));
        }
    } catch (const fs::filesystem_error& fault) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("cannot write shards: {}", fault.what()));
    } catch (const ov::Exception& fault) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("cannot write shards: {}", openvino_reason(fault.what())));
    }
    progress(ranges.size(), ranges.size());
    return written;
}

}  // namespace shardline
