#include "text/chat_template.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <openvino/openvino.hpp>
#include <utility>

#include "base/error.hpp"
#include "shardline_text.h"
#include "text/text_repair.hpp"
#include "text/tokenizer_config.hpp"
#include "text/tokenizer_library.hpp"

namespace shardline {

namespace {

using nlohmann::json;

constexpr std::uintmax_t kTemplateBytesMax = std::uintmax_t{4} << 20;
constexpr std::size_t kInputBytesMax = std::size_t{256} << 20;

// Text made by the Rust side, freed with it.
class RustText final {
public:
    RustText() = default;
    RustText(const RustText&) = delete;
    RustText& operator=(const RustText&) = delete;
    ~RustText() { shardline_text_free(text_); }

    shardline_text* out() { return &text_; }
    std::string str() const { return {text_.data, text_.size}; }

private:
    shardline_text text_{nullptr, 0};
};

struct TemplateDeleter {
    void operator()(shardline_template* chat_template) const {
        shardline_template_free(chat_template);
    }
};

std::string read_template_file(const std::filesystem::path& path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) {
        return {};
    }
    if (size > kTemplateBytesMax) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("{} has {} bytes, more than a chat template can have",
                                path.string(), size));
    }
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string template_of_model(const std::filesystem::path& directory) {
    const auto path = directory / "openvino_tokenizer.xml";
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) {
        return {};
    }
    try {
        ov::Core core;
        core.add_extension(TokenizerLibrary::open().path().string());
        const auto model = core.read_model(path.string());
        const auto& info = model->get_rt_info();
        const auto entry = info.find("chat_template");
        if (entry == info.end()) {
            return {};
        }
        // One template as text, or several by name.
        return entry->second.is<std::string>()
                   ? entry->second.as<std::string>()
                   : model->get_rt_info<std::string>("chat_template", "default");
    } catch (const ov::Exception& failure) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("cannot read {}: {}", path.string(), failure.what()));
    }
}

std::string find_template(const std::filesystem::path& directory, const TokenizerConfig& config) {
    auto source = read_template_file(directory / "chat_template.jinja");
    if (source.empty()) {
        source = config.chat_template;
    }
    if (source.empty()) {
        source = template_of_model(directory);
    }
    if (source.empty()) {
        throw Error(ErrorCode::kNotFound,
                    fmt::format("{} has no chat template (chat_template.jinja, chat_template in "
                                "tokenizer_config.json or in openvino_tokenizer.xml)",
                                directory.string()));
    }
    return source;
}

Error render_error(shardline_template_status status, const std::string& message) {
    switch (status) {
        case SHARDLINE_TEMPLATE_RAISED: return {ErrorCode::kInvalidArgument, message};
        case SHARDLINE_TEMPLATE_TOO_EXPENSIVE:
            return {ErrorCode::kResourceExhausted,
                    fmt::format("the chat template does not end within its limits: {}", message)};
        case SHARDLINE_TEMPLATE_BROKEN:
            return {ErrorCode::kInternal, fmt::format("chat template: {}", message)};
        default:
            return {ErrorCode::kInvalidArgument,
                    fmt::format("the chat template cannot render these messages: {}", message)};
    }
}

}  // namespace

struct ChatTemplate::State {
    std::string source;
    std::unique_ptr<shardline_template, TemplateDeleter> parsed;
};

ChatTemplate ChatTemplate::open(const std::filesystem::path& model_directory) {
    const auto config = read_tokenizer_config(model_directory);
    return parse(find_template(model_directory, config), config.bos_token, config.eos_token);
}

ChatTemplate ChatTemplate::parse(const std::string& source, const std::string& bos_token,
                                 const std::string& eos_token) {
    json constants = json::object();
    if (!bos_token.empty()) {
        constants["bos_token"] = repaired_utf8(bos_token);
    }
    if (!eos_token.empty()) {
        constants["eos_token"] = repaired_utf8(eos_token);
    }
    const auto constants_text = constants.dump();
    shardline_template* parsed = nullptr;
    RustText text;
    const auto status =
        shardline_template_parse(source.data(), source.size(), constants_text.data(),
                                 constants_text.size(), &parsed, text.out());
    auto state = std::make_unique<State>();
    state->parsed.reset(parsed);
    state->source = source;
    if (status == SHARDLINE_TEMPLATE_OK) {
        return ChatTemplate(std::move(state));
    }
    if (status == SHARDLINE_TEMPLATE_UNKNOWN_NAME) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("the chat template uses the {}, which we do not have", text.str()));
    }
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the chat template does not parse: {}", text.str()));
}

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const std::string& inputs_json, bool add_generation_prompt) const {
    if (inputs_json.size() > kInputBytesMax) {
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("{} bytes of messages are more than we render", inputs_json.size()));
    }
    // Numbers and key order have to reach the template as they were written.
    auto inputs = nlohmann::ordered_json::parse(inputs_json, nullptr, /*allow_exceptions=*/false);
    if (!inputs.is_object()) {
        throw Error(ErrorCode::kInvalidArgument, "the chat template's inputs are no JSON object");
    }
    inputs["add_generation_prompt"] = add_generation_prompt;
    const auto text = inputs.dump();
    RustText rendered;
    const auto status =
        shardline_template_render(state_->parsed.get(), text.data(), text.size(), rendered.out());
    if (status != SHARDLINE_TEMPLATE_OK) {
        throw render_error(status, rendered.str());
    }
    return rendered.str();
}

const std::string& ChatTemplate::source() const {
    return state_->source;
}

}  // namespace shardline
