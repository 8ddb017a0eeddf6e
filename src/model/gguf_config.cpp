#include "model/gguf_config.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <openvino/runtime/tensor.hpp>
#include <set>
#include <string_view>
#include <vector>

namespace shardline {

namespace {

using nlohmann::ordered_json;

// Control tokens by which the known chat formats end a turn or a text. A GGUF names one, seldom
// all, of its own by id.
constexpr std::array<std::string_view, 12> kEndTexts = {
    "<|im_end|>", "<|eot_id|>",      "<|eom_id|>", "<|end|>",  "<end_of_turn>", "<|endoftext|>",
    "<EOT>",      "<|end_of_text|>", "<|return|>", "<|call|>", "</s>",          "<|endofturn|>"};

constexpr std::int32_t kControlToken = 3;

template <typename Value>
const Value* entry(const ov::AnyMap& map, const std::string& key) {
    const auto found = map.find(key);
    return found != map.end() && found->second.is<Value>() ? &found->second.as<Value>() : nullptr;
}

std::set<std::uint64_t> end_ids(const GgufHeader& header, const ov::AnyMap& tokenizer) {
    std::set<std::uint64_t> ids;
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.eom_token_id"}) {
        if (const auto id = header.number(key)) {
            ids.insert(*id);
        }
    }
    const auto* tokens = entry<std::vector<std::string>>(tokenizer, "tokens");
    const auto* types = entry<ov::Tensor>(tokenizer, "token_type");
    if (tokens == nullptr || types == nullptr || types->get_element_type() != ov::element::i32) {
        return ids;
    }
    const auto* type = types->data<const std::int32_t>();
    for (std::size_t id = 0; id < std::min(tokens->size(), types->get_size()); ++id) {
        if (type[id] == kControlToken &&
            std::find(kEndTexts.begin(), kEndTexts.end(), (*tokens)[id]) != kEndTexts.end()) {
            ids.insert(id);
        }
    }
    return ids;
}

std::string dump(const ordered_json& document) {
    // Names in a GGUF need not be valid UTF-8.
    return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

GgufConfig make_gguf_config(const std::string& name, const GgufHeader& header,
                            const ov::AnyMap& tokenizer) {
    const std::string architecture(header.architecture());
    ordered_json config;
    config["name"] = name;
    config["model_type"] = architecture;
    constexpr std::array<std::pair<const char*, const char*>, 8> kNumbers = {{
        {"max_position_embeddings", "context_length"},
        {"hidden_size", "embedding_length"},
        {"num_hidden_layers", "block_count"},
        {"intermediate_size", "feed_forward_length"},
        {"num_attention_heads", "attention.head_count"},
        {"num_key_value_heads", "attention.head_count_kv"},
        {"head_dim", "attention.key_length"},
        {"sliding_window", "attention.sliding_window"},
    }};
    for (const auto& [member, key] : kNumbers) {
        if (const auto value = header.number(architecture + "." + key)) {
            config[member] = *value;
        }
    }
    if (const auto base = header.real(architecture + ".rope.freq_base")) {
        config["rope_theta"] = *base;
    }
    if (const auto* tokens = entry<std::vector<std::string>>(tokenizer, "tokens")) {
        config["vocab_size"] = tokens->size();
    }
    config["tie_word_embeddings"] = !header.has_tensor("output.weight");

    ordered_json generation;
    for (ordered_json* document : {&config, &generation}) {
        if (const auto bos = header.number("tokenizer.ggml.bos_token_id")) {
            (*document)["bos_token_id"] = *bos;
        }
    }
    generation["eos_token_id"] = end_ids(header, tokenizer);
    return {dump(config), dump(generation)};
}

}  // namespace shardline
