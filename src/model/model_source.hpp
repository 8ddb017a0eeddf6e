#pragma once

#include <filesystem>
#include <memory>
#include <openvino/openvino.hpp>

#include "model/model_info.hpp"
#include "model/model_paths.hpp"
#include "model/weight_map.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// An opened OpenVINO model directory (the layouts of GenAI and of optimum-intel):
//
//     openvino_model.xml/.bin  openvino_tokenizer.xml/.bin  openvino_detokenizer.xml/.bin
//     config.json  generation_config.json  chat_template.jinja | tokenizer_config.json
//
// Only openvino_model.* is needed to open; what is missing is reported by who needs it. Weights
// are memory-mapped and not touched. Not thread-safe; cheap to open.
class ModelSource final {
public:
    // Throws Error naming the file: not found, cut short (the .bin smaller than what the .xml
    // names), not an IR, or without what a language model needs.
    static ModelSource open(const std::filesystem::path& directory);

    const std::filesystem::path& directory() const { return directory_; }
    const ModelInfo& info() const { return info_; }
    const ModelFingerprint& fingerprint() const { return fingerprint_; }

    // Which bytes of the .bin each constant takes.
    const WeightMap& weight_map() const { return weight_map_; }

    // A graph of its own at every call, weights shared by mapping: cutting rewrites it in place.
    std::shared_ptr<ov::Model> read_graph() const;

private:
    ModelSource() = default;

    std::filesystem::path directory_;
    ModelInfo info_;
    ModelFingerprint fingerprint_;
    WeightMap weight_map_;
};

}  // namespace shardline
