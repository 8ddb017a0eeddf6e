#include "model/model_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <openvino/op/util/gather_base.hpp>
#include <openvino/op/util/read_value_base.hpp>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "model/fingerprint.hpp"
#include "model/model_files.hpp"
#include "model/openvino_error.hpp"

namespace shardline {

namespace {

namespace fs = std::filesystem;

void require_model_files(const fs::path& directory) {
    if (!fs::exists(directory)) {
        throw Error(ErrorCode::kNotFound,
                    fmt::format("there is no model at {}", directory.string()));
    }
    if (!fs::is_directory(directory)) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{} is not a model directory; a GGUF file is made into one by "
                                "'shardline import'",
                                directory.string()));
    }
    for (const char* name : {kModelXmlName, kModelBinName}) {
        if (!fs::is_regular_file(directory / name)) {
            throw Error(ErrorCode::kNotFound,
                        fmt::format("{} has no {}; export it with optimum-cli export openvino, or "
                                    "import a GGUF file with 'shardline import'",
                                    directory.string(), name));
        }
    }
}

// States that grow with the sequence: a dynamic dimension beside the batch. (Convolution and
// state-space models keep states of a fixed size.)
bool grows(const ov::PartialShape& shape) {
    if (shape.rank().is_dynamic() || shape.size() < 3) {
        return false;
    }
    return std::any_of(shape.begin() + 1, shape.end(),
                       [](const ov::Dimension& dimension) { return dimension.is_dynamic(); });
}

std::uint32_t count_layers(const ov::Model& model) {
    std::uint32_t num_states = 0;
    for (const auto& op : model.get_ops()) {
        if (dynamic_cast<const ov::op::util::ReadValueBase*>(op.get()) != nullptr &&
            grows(op->get_output_partial_shape(0))) {
            ++num_states;
        }
    }
    if (num_states == 0) {
        // A stateless export has its past as inputs instead.
        for (const auto& parameter : model.get_parameters()) {
            num_states += grows(parameter->get_output_partial_shape(0)) ? 1 : 0;
        }
    }
    return (num_states + 1) / 2;  // keys and values
}

struct EmbeddingSize {
    std::uint32_t rows = 0;
    std::uint32_t width = 0;
};

// The table that the token ids index, looked for along the ops that only reshape or convert ids.
std::optional<EmbeddingSize> find_embedding(const ov::Output<const ov::Node>& input_ids) {
    std::deque<ov::Output<const ov::Node>> outputs = {input_ids};
    std::set<const ov::Node*> seen;
    while (!outputs.empty()) {
        const auto output = outputs.front();
        outputs.pop_front();
        for (const auto& target : output.get_target_inputs()) {
            const ov::Node* op = target.get_node();
            if (!seen.insert(op).second) {
                continue;
            }
            const bool gather = dynamic_cast<const ov::op::util::GatherBase*>(op) != nullptr;
            if (gather && target.get_index() == 1) {
                const ov::PartialShape& table = op->get_input_partial_shape(0);
                if (table.is_static() && table.size() == 2) {
                    return EmbeddingSize{static_cast<std::uint32_t>(table[0].get_length()),
                                         static_cast<std::uint32_t>(table[1].get_length())};
                }
            } else if (target.get_index() == 0 && op->get_output_size() == 1) {
                const std::string type = op->get_type_name();
                if (type == "Convert" || type == "Reshape" || type == "Unsqueeze" ||
                    type == "Squeeze" || type == "Gather") {
                    outputs.push_back(op->output(0));
                }
            }
        }
    }
    return std::nullopt;
}

EmbeddingSize require_language_model(const ov::Model& model, const fs::path& xml) {
    std::optional<ov::Output<const ov::Node>> ids;
    for (const auto& input : model.inputs()) {
        if (input.get_names().count("input_ids") != 0) {
            ids = input;
        }
    }
    if (!ids) {
        throw Error(
            ErrorCode::kUnsupported,
            fmt::format("{} is not a text model: it has no input 'input_ids'", xml.string()));
    }
    const auto outputs = model.outputs();
    if (std::none_of(outputs.begin(), outputs.end(),
                     [](const auto& output) { return output.get_names().count("logits") != 0; })) {
        throw Error(
            ErrorCode::kUnsupported,
            fmt::format("{} is not a language model: it has no output 'logits'", xml.string()));
    }
    const auto embedding = find_embedding(*ids);
    if (!embedding) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("{}: no embedding table is indexed by 'input_ids'", xml.string()));
    }
    return *embedding;
}

ModelInfo describe(const fs::path& directory, const ov::Model& model, std::uint64_t bin_bytes) {
    const ModelFiles files = read_model_files(directory);
    const EmbeddingSize embedding = require_language_model(model, directory / kModelXmlName);
    ModelInfo info;
    info.name =
        files.name.empty() ? fs::weakly_canonical(directory).filename().string() : files.name;
    info.architecture = files.architecture;
    info.num_layers = count_layers(model);
    info.hidden_size = embedding.width;
    info.vocab_size = embedding.rows;
    info.context_length = files.context_length;
    // Ids beyond the table (left over in configs of cut-down models) can never come out.
    std::copy_if(files.eos_token_ids.begin(), files.eos_token_ids.end(),
                 std::back_inserter(info.eos_token_ids),
                 [&](std::int64_t id) { return id < std::int64_t{info.vocab_size}; });
    info.weights_bytes = bin_bytes;
    return info;
}

}  // namespace

ModelSource ModelSource::open(const fs::path& directory) try {
    require_model_files(directory);
    const fs::path xml_file = directory / kModelXmlName;
    const std::string xml = read_text_file(xml_file, kMaxModelXmlBytes);

    ModelSource source;
    source.directory_ = directory;
    source.fingerprint_ = fingerprint_model(xml, directory / kModelBinName);
    source.weight_map_ = WeightMap::parse(xml, xml_file.string(), source.fingerprint_.bin_bytes);
    source.info_ = describe(directory, *source.read_graph(), source.fingerprint_.bin_bytes);
    return source;
} catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
}

std::shared_ptr<ov::Model> ModelSource::read_graph() const {
    try {
        ov::Core core;
        return core.read_model(directory_ / kModelXmlName);
    } catch (const std::exception& error) {
        throw Error(ErrorCode::kCorrupt, fmt::format("OpenVINO cannot read {}: {}",
                                                     (directory_ / kModelXmlName).string(),
                                                     openvino_reason(error.what())));
    }
}

}  // namespace shardline
