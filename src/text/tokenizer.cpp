#include "text/tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <openvino/openvino.hpp>
#include <set>

#include "base/error.hpp"
#include "text/byte_alphabet.hpp"
#include "text/detokenizer.hpp"
#include "text/marker_guard.hpp"
#include "text/text_repair.hpp"
#include "text/tokenizer_config.hpp"
#include "text/tokenizer_graph.hpp"
#include "text/tokenizer_library.hpp"

namespace shardline {

namespace {

constexpr const char* kTokenizerFile = "openvino_tokenizer.xml";
constexpr const char* kDetokenizerFile = "openvino_detokenizer.xml";
// Offsets inside tokenizer models are 32-bit, and their scratch space is a multiple of the text.
constexpr std::size_t kTextBytesMax = std::size_t{64} << 20;

// One compiled tokenizer or detokenizer model; callers take turns.
class TextModel final {
public:
    TextModel(ov::Core& core, const std::shared_ptr<ov::Model>& model)
        : infer_(core.compile_model(model, "CPU",
                                    {ov::num_streams(1), ov::inference_num_threads(1),
                                     ov::hint::enable_cpu_pinning(false)})
                     .create_infer_request()) {}

    // Calls `read` with the infer request after it ran, still alone with it.
    template <typename Read>
    auto run(const ov::Tensor& input, Read read) {
        std::lock_guard lock(mutex_);
        infer_.set_input_tensor(input);
        infer_.infer();
        return read(infer_);
    }

private:
    std::mutex mutex_;
    ov::InferRequest infer_;  // guarded by mutex_
};

std::shared_ptr<ov::Model> read_text_model(ov::Core& core, const std::filesystem::path& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) {
        throw Error(ErrorCode::kNotFound,
                    fmt::format("{} not found; `shardline import` writes it for a GGUF file, "
                                "optimum-cli exports it with an OpenVINO model",
                                path.string()));
    }
    auto model = core.read_model(path.string());
    if (model->inputs().size() != 1 || model->outputs().empty()) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("{} takes {} inputs; we know tokenizers of one text", path.string(),
                                model->inputs().size()));
    }
    return model;
}

ov::Tensor string_tensor(std::string_view text) {
    ov::Tensor tensor(ov::element::string, ov::Shape{1});
    *tensor.data<std::string>() = text;
    return tensor;
}

ov::Tensor id_tensor(const ov::element::Type& type, const ov::Shape& shape,
                     std::span<const std::int64_t> ids) {
    ov::Tensor tensor(type, shape);
    for (std::size_t index = 0; index < ids.size(); ++index) {
        if (type == ov::element::i64) {
            tensor.data<std::int64_t>()[index] = ids[index];
        } else {
            tensor.data<std::int32_t>()[index] = static_cast<std::int32_t>(ids[index]);
        }
    }
    return tensor;
}

std::vector<std::int64_t> read_ids(ov::InferRequest& infer) {
    const auto tensor = infer.get_output_tensor(0);
    std::vector<std::int64_t> ids(tensor.get_size());
    if (tensor.get_element_type() == ov::element::i64) {
        std::copy_n(tensor.data<const std::int64_t>(), ids.size(), ids.begin());
    } else {
        std::copy_n(tensor.data<const std::int32_t>(), ids.size(), ids.begin());
    }
    return ids;
}

// Every token's bytes, by decoding each id as a text of its own.
std::vector<std::string> read_token_bytes(ov::Core& core, const DetokenizerGraph& graph) {
    std::vector<std::int64_t> ids(graph.vocab_size);
    for (std::size_t id = 0; id < ids.size(); ++id) {
        ids[id] = static_cast<std::int64_t>(id);
    }
    const auto type = graph.token_bytes->input().get_element_type();
    TextModel model(core, graph.token_bytes);
    return model.run(id_tensor(type, ov::Shape{ids.size(), 1}, ids), [&](ov::InferRequest& infer) {
        const auto begins = infer.get_output_tensor(0);
        const auto ends = infer.get_output_tensor(1);
        const auto bytes = infer.get_output_tensor(2);
        const auto* data = reinterpret_cast<const char*>(bytes.data<const std::uint8_t>());
        std::vector<std::string> tokens(ids.size());
        for (std::size_t id = 0; id < ids.size(); ++id) {
            const auto first = begins.data<const std::int32_t>()[id];
            const auto last = ends.data<const std::int32_t>()[id];
            if (first < 0 || last < first || static_cast<std::size_t>(last) > bytes.get_size()) {
                throw Error(ErrorCode::kCorrupt,
                            fmt::format("the detokenizer gives token {} no bytes", id));
            }
            tokens[id].assign(data + first, data + last);
        }
        return tokens;
    });
}

Detokenizer make_detokenizer(ov::Core& core, const std::shared_ptr<ov::Model>& model) {
    auto graph = take_apart_detokenizer(model);
    if (graph.vocab_size == 0) {
        throw Error(ErrorCode::kUnsupported,
                    "the detokenizer model has neither a vocabulary nor SentencePiece pieces");
    }
    if (graph.token_bytes != nullptr) {
        return Detokenizer(read_token_bytes(core, graph), graph.special_ids, graph.rules);
    }
    const auto type = model->input().get_element_type();
    auto whole = std::make_shared<TextModel>(core, model);  // the function below is copied
    return Detokenizer(graph.vocab_size, [whole, type](std::span<const std::int64_t> ids) {
        return whole->run(id_tensor(type, ov::Shape{1, ids.size()}, ids),
                          [](ov::InferRequest& infer) {
                              return *infer.get_output_tensor(0).data<const std::string>();
                          });
    });
}

std::vector<Marker> find_markers(const std::vector<std::int64_t>& added,
                                 const Detokenizer& detokenizer) {
    std::set<std::int64_t> ids(added.begin(), added.end());
    for (std::size_t id = 0; id < detokenizer.vocab_size(); ++id) {
        if (detokenizer.is_special(static_cast<std::int64_t>(id))) {
            ids.insert(static_cast<std::int64_t>(id));
        }
    }
    std::vector<Marker> markers;
    for (const auto id : ids) {
        auto text = detokenizer.token_bytes(id);
        if (!text.empty() && is_valid_utf8(text)) {
            markers.push_back({id, std::move(text), detokenizer.is_special(id)});
        }
    }
    return markers;
}

}  // namespace

struct Tokenizer::State {
    std::filesystem::path tokenizer_path;
    ov::Core core;
    std::optional<TextModel> encoder;
    AddedIds added;
    std::optional<Detokenizer> detokenizer;
    std::vector<Marker> markers;
    TokenizerConfig config;
    std::vector<std::int64_t> eos_token_ids;

    // The same graph for text without markers. Few prompts need it, so it is compiled late; it is
    // read at once, because the files may be gone by then.
    std::mutex plain_mutex;
    std::shared_ptr<ov::Model> plain_model;  // guarded by plain_mutex; null once compiled
    std::optional<TextModel> plain_encoder;  // guarded by plain_mutex

    void open_models(const std::filesystem::path& directory);
    void name_tokens(const ov::Model& tokenizer);
    void read_plain_model();
    TextModel& plain();
    std::vector<std::int64_t> encode(TextModel& model, std::string_view text);
    bool holds_marker(const std::vector<std::int64_t>& ids) const;
    std::vector<std::string_view> parts_of_markers(std::string_view text) const;
};

void Tokenizer::State::open_models(const std::filesystem::path& directory) {
    tokenizer_path = directory / kTokenizerFile;
    core.add_extension(TokenizerLibrary::open().path().string());
    const auto tokenizer = read_text_model(core, tokenizer_path);
    const auto detokenizer_model = read_text_model(core, directory / kDetokenizerFile);
    added = take_added_ids(*tokenizer);
    disable_truncation(*tokenizer);
    const auto marked = marker_ids(*tokenizer);
    detokenizer.emplace(make_detokenizer(core, detokenizer_model));
    markers = find_markers(marked, *detokenizer);
    config = read_tokenizer_config(directory);
    name_tokens(*tokenizer);
    read_plain_model();
    encoder.emplace(core, tokenizer);
    if (!encode(*encoder, "a").empty()) {
        return;
    }
    throw Error(ErrorCode::kCorrupt,
                fmt::format("{} gives no ids for a text", tokenizer_path.string()));
}

void Tokenizer::State::name_tokens(const ov::Model& tokenizer) {
    std::set<std::int64_t> ids(config.eos_token_ids.begin(), config.eos_token_ids.end());
    const auto named_id = [&](const char* key) -> std::optional<std::int64_t> {
        if (!tokenizer.has_rt_info(key)) {
            return std::nullopt;
        }
        try {
            return tokenizer.get_rt_info<std::int64_t>(key);
        } catch (const ov::Exception&) {
            return std::nullopt;  // optimum writes "None" for tokens a model does not have
        }
    };
    const auto id_of = [&](const std::string& text) -> std::optional<std::int64_t> {
        for (const auto& marker : markers) {
            if (marker.text == text) {
                return marker.id;
            }
        }
        return std::nullopt;
    };
    for (const auto& id : {named_id("eos_token_id"), id_of(config.eos_token)}) {
        if (id) {
            ids.insert(*id);
        }
    }
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(eos_token_ids), [&](std::int64_t id) {
        return id >= 0 && static_cast<std::size_t>(id) < detokenizer->vocab_size();
    });
    if (const auto id = named_id("bos_token_id"); id && config.bos_token.empty()) {
        config.bos_token = detokenizer->token_bytes(*id);
    }
    if (const auto id = named_id("eos_token_id"); id && config.eos_token.empty()) {
        config.eos_token = detokenizer->token_bytes(*id);
    }
}

void Tokenizer::State::read_plain_model() {
    plain_model = read_text_model(core, tokenizer_path);
    take_added_ids(*plain_model);
    disable_truncation(*plain_model);
    std::vector<std::int64_t> ids;
    for (const auto& marker : markers) {
        ids.push_back(marker.id);
    }
    make_text_plain(*plain_model, ids);
}

TextModel& Tokenizer::State::plain() {
    std::lock_guard lock(plain_mutex);
    if (!plain_encoder) {
        plain_encoder.emplace(core, plain_model);
        plain_model.reset();
    }
    return *plain_encoder;
}

std::vector<std::int64_t> Tokenizer::State::encode(TextModel& model, std::string_view text) {
    if (text.empty()) {
        return {};
    }
    if (text.size() > kTextBytesMax) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("a text of {} bytes is longer than the {} we tokenize", text.size(),
                                kTextBytesMax));
    }
    try {
        return model.run(
            string_tensor(is_valid_utf8(text) ? std::string(text) : repaired_utf8(text)), read_ids);
    } catch (const ov::Exception& error) {
        throw Error(ErrorCode::kInternal,
                    fmt::format("{} failed on a text of {} bytes: {}", tokenizer_path.string(),
                                text.size(), error.what()));
    }
}

bool Tokenizer::State::holds_marker(const std::vector<std::int64_t>& ids) const {
    return std::any_of(ids.begin(), ids.end(), [&](std::int64_t id) {
        const auto found = std::lower_bound(
            markers.begin(), markers.end(), id,
            [](const Marker& marker, std::int64_t value) { return marker.id < value; });
        return found != markers.end() && found->id == id;
    });
}

// Cut after the first character of everything that spells a marker.
std::vector<std::string_view> Tokenizer::State::parts_of_markers(std::string_view text) const {
    const MarkerFinder finder(markers);
    std::vector<std::string_view> parts;
    std::size_t start = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const auto next = at + utf8_length(static_cast<unsigned char>(text[at]));
        if (finder.longest_at(text, at) != nullptr && next < text.size()) {
            parts.push_back(text.substr(start, next - start));
            start = next;
        }
    }
    parts.push_back(text.substr(start));
    return parts;
}

Tokenizer Tokenizer::open(const std::filesystem::path& model_directory) {
    auto state = std::make_unique<State>();
    try {
        state->open_models(model_directory);
    } catch (const ov::Exception& error) {
        throw Error(ErrorCode::kCorrupt, fmt::format("cannot open the tokenizer of {}: {}",
                                                     model_directory.string(), error.what()));
    }
    return Tokenizer(std::move(state));
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
    auto ids = state_->encode(*state_->encoder, text);
    if (add_special_tokens) {
        ids.insert(ids.begin(), state_->added.front.begin(), state_->added.front.end());
        ids.insert(ids.end(), state_->added.back.begin(), state_->added.back.end());
    }
    return ids;
}

std::vector<std::int64_t> Tokenizer::encode_plain(std::string_view text) const {
    auto ids = state_->encode(state_->plain(), text);
    if (!state_->holds_marker(ids)) {
        return ids;
    }
    // A kind of tokenizer whose markers we cannot switch off: no marker survives being read in
    // two parts.
    ids.clear();
    for (const auto part : state_->parts_of_markers(text)) {
        const auto more = state_->encode(state_->plain(), part);
        ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids, bool skip_special_tokens) const {
    return state_->detokenizer->decode(ids, skip_special_tokens);
}

std::string Tokenizer::token_bytes(std::int64_t id) const {
    return state_->detokenizer->token_bytes(id);
}

std::uint32_t Tokenizer::vocab_size() const {
    return static_cast<std::uint32_t>(state_->detokenizer->vocab_size());
}

std::vector<std::int64_t> Tokenizer::eos_token_ids() const {
    return state_->eos_token_ids;
}

std::string Tokenizer::bos_token() const {
    return state_->config.bos_token;
}

std::string Tokenizer::eos_token() const {
    return state_->config.eos_token;
}

const std::vector<Marker>& Tokenizer::markers() const {
    return state_->markers;
}

const std::vector<std::int64_t>& Tokenizer::front_ids() const {
    return state_->added.front;
}

const Detokenizer& Tokenizer::detokenizer() const {
    return *state_->detokenizer;
}

}  // namespace shardline
