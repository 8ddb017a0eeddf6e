#include "model/model_files.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/file.hpp"

namespace shardline {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMaxJsonBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxTokenizerXmlBytes = std::uint64_t{64} << 20;

[[noreturn]] void malformed(const fs::path& file, const std::string& what) {
    throw Error(ErrorCode::kCorrupt, fmt::format("{}: {}", file.string(), what));
}

std::optional<json> read_json(const fs::path& file) {
    if (!fs::exists(file)) {
        return std::nullopt;
    }
    json document;
    try {
        document = json::parse(read_text_file(file, kMaxJsonBytes));
    } catch (const json::exception& error) {
        malformed(file, fmt::format("not valid JSON: {}", error.what()));
    }
    if (!document.is_object()) {
        malformed(file, "not a JSON object");
    }
    return document;
}

// A member that may be missing or null.
const json* member(const json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string string_member(const fs::path& file, const json& object, const char* key) {
    const json* value = member(object, key);
    if (value == nullptr) {
        return {};
    }
    if (!value->is_string()) {
        malformed(file, fmt::format("\"{}\" is not a string", key));
    }
    return value->get<std::string>();
}

// Models with images keep the language model's part one level down.
std::vector<const json*> text_scopes(const json& config) {
    std::vector<const json*> scopes = {&config};
    for (const char* key : {"text_config", "llm_config", "language_config"}) {
        const json* nested = member(config, key);
        if (nested != nullptr && nested->is_object()) {
            scopes.push_back(nested);
        }
    }
    return scopes;
}

std::uint32_t context_length(const fs::path& file, const json& config) {
    constexpr std::array kKeys = {"max_position_embeddings",
                                  "n_positions",
                                  "max_sequence_length",
                                  "max_seq_len",
                                  "seq_length",
                                  "n_ctx"};
    for (const json* scope : text_scopes(config)) {
        for (const char* key : kKeys) {
            const json* value = member(*scope, key);
            if (value == nullptr) {
                continue;
            }
            if (!value->is_number_integer() || value->get<std::int64_t>() <= 0 ||
                value->get<std::int64_t>() > std::numeric_limits<std::int32_t>::max()) {
                malformed(file, fmt::format("\"{}\" is not a sensible number of tokens", key));
            }
            return value->get<std::uint32_t>();
        }
    }
    return 0;
}

void add_eos_ids(const fs::path& file, const json& object, std::set<std::int64_t>& ids) {
    const json* value = member(object, "eos_token_id");
    if (value == nullptr) {
        return;
    }
    const auto add = [&](const json& id) {
        if (!id.is_number_integer()) {
            malformed(file, "\"eos_token_id\" is neither a token id nor a list of them");
        }
        // Some exporters write -1 for "none".
        if (id.get<std::int64_t>() >= 0) {
            ids.insert(id.get<std::int64_t>());
        }
    };
    if (value->is_array()) {
        for (const json& id : *value) {
            add(id);
        }
    } else {
        add(*value);
    }
}

std::optional<std::int64_t> parse_id(const std::string& text) {
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    const bool whole = error == std::errc() && end == text.data() + text.size() && id >= 0;
    return whole ? std::optional(id) : std::nullopt;
}

// tokenizer_config.json names the token by its text and lists the ids of added tokens.
void add_named_eos(const json& config, std::set<std::int64_t>& ids) {
    const json* eos = member(config, "eos_token");
    const json* added = member(config, "added_tokens_decoder");
    if (eos != nullptr && eos->is_object()) {
        eos = member(*eos, "content");
    }
    if (eos == nullptr || !eos->is_string() || added == nullptr || !added->is_object()) {
        return;
    }
    for (const auto& [id_text, token] : added->items()) {
        const json* content = token.is_object() ? member(token, "content") : nullptr;
        const auto id = parse_id(id_text);
        if (content != nullptr && *content == *eos && id) {
            ids.insert(*id);
        }
    }
}

// <rt_info><eos_token_id value="2" /></rt_info> at the end of the tokenizer models.
void add_tokenizer_model_eos(const fs::path& file, std::set<std::int64_t>& ids) {
    if (!fs::exists(file)) {
        return;
    }
    const std::string xml = read_text_file(file, kMaxTokenizerXmlBytes);
    pugi::xml_document document;
    const pugi::xml_parse_result result = document.load_buffer(xml.data(), xml.size());
    if (!result) {
        malformed(file,
                  fmt::format("not valid XML: {} at byte {}", result.description(), result.offset));
    }
    const pugi::xml_node info = document.child("net").child("rt_info");
    std::istringstream values(info.child("eos_token_id").attribute("value").value());
    for (std::string value; std::getline(values, value, ',');) {
        const auto first = value.find_first_not_of(" \t");
        if (const auto id = parse_id(first == std::string::npos ? value : value.substr(first))) {
            ids.insert(*id);
        }
    }
}

}  // namespace

ModelFiles read_model_files(const fs::path& directory) {
    ModelFiles files;
    std::set<std::int64_t> eos;
    const fs::path config_file = directory / "config.json";
    if (const auto config = read_json(config_file)) {
        files.name = string_member(config_file, *config, "name");
        files.architecture = string_member(config_file, *config, "model_type");
        files.context_length = context_length(config_file, *config);
        for (const json* scope : text_scopes(*config)) {
            add_eos_ids(config_file, *scope, eos);
        }
    }
    const fs::path generation_file = directory / "generation_config.json";
    if (const auto generation = read_json(generation_file)) {
        add_eos_ids(generation_file, *generation, eos);
    }
    if (const auto tokenizer = read_json(directory / "tokenizer_config.json")) {
        add_named_eos(*tokenizer, eos);
    }
    read_json(directory / "openvino_config.json");  // nothing in it concerns us, if it is sound
    add_tokenizer_model_eos(directory / "openvino_tokenizer.xml", eos);
    add_tokenizer_model_eos(directory / "openvino_detokenizer.xml", eos);
    files.eos_token_ids.assign(eos.begin(), eos.end());
    return files;
}

}  // namespace shardline
