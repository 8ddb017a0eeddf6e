#include "text/tokenizer_config.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace shardline {

namespace {

using nlohmann::json;

constexpr std::uintmax_t kConfigBytesMax = std::uintmax_t{256} << 20;

// Either a string or Hugging Face's {"content": "...", ...}.
std::string token_text(const json& config, const char* key) {
    const auto found = config.find(key);
    if (found == config.end()) {
        return {};
    }
    if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
        return (*found)["content"].get<std::string>();
    }
    return found->is_string() ? found->get<std::string>() : std::string();
}

// Either a string or a list of {"name": "...", "template": "..."} with one named default.
std::string default_template(const json& config) {
    const auto found = config.find("chat_template");
    if (found == config.end()) {
        return {};
    }
    if (found->is_string()) {
        return found->get<std::string>();
    }
    if (found->is_array()) {
        for (const auto& entry : *found) {
            if (entry.is_object() && entry.value("name", json()) == "default" &&
                entry.contains("template") && entry["template"].is_string()) {
                return entry["template"].get<std::string>();
            }
        }
    }
    return {};
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::filesystem::path& model_directory) {
    const auto path = model_directory / "tokenizer_config.json";
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) {
        return {};
    }
    if (size > kConfigBytesMax) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("{} has {} bytes, more than a tokenizer config can have",
                                path.string(), size));
    }
    std::ifstream file(path, std::ios::binary);
    const auto config = json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object()) {
        throw Error(ErrorCode::kCorrupt, fmt::format("{} is not a JSON object", path.string()));
    }
    TokenizerConfig result;
    result.bos_token = token_text(config, "bos_token");
    result.eos_token = token_text(config, "eos_token");
    result.chat_template = default_template(config);
    if (const auto ids = config.find("eos_token_ids"); ids != config.end() && ids->is_array()) {
        for (const auto& id : *ids) {
            if (id.is_number_integer()) {
                result.eos_token_ids.push_back(id.get<std::int64_t>());
            }
        }
    }
    return result;
}

}  // namespace shardline
