#include "text/gguf_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <openvino/op/ops.hpp>
#include <openvino/openvino.hpp>
#include <set>

#include "base/error.hpp"
#include "text/gguf_pre_tokenizer.hpp"
#include "text/gguf_vocabulary.hpp"
#include "text/merge_model.hpp"
#include "text/tokenizer_library.hpp"
#include "text/tokenizer_ops.hpp"

namespace shardline {

namespace {

using ov::Output;
using ov::OutputVector;

// Control tokens that end an answer when a file does not name them under an id of their own.
constexpr std::array kEndOfTurnTexts{
    "<|eot_id|>",    "<|eom_id|>",    "<|im_end|>",         "<|end|>",
    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",    "<EOT>",
    "_<EOT>",        "[EOT]",         "<|end_of_turn|>",    "<|endofturn|>",
    "<|return|>",    "<|call|>",      "<end_of_utterance>", "<｜end▁of▁sentence｜>",
};

// Ragged begins and ends of a batch of single strings: 0..n and 1..n+1.
OutputVector with_ragged_dimension(const OutputVector& strings) {
    const auto zero = scalar_constant(0);
    const auto one = scalar_constant(1);
    const auto shape = std::make_shared<ov::op::v3::ShapeOf>(strings[0], ov::element::i32);
    const auto count = std::make_shared<ov::op::v8::Gather>(shape, zero, zero);
    const auto past_end = std::make_shared<ov::op::v1::Add>(count, one);
    OutputVector ragged{std::make_shared<ov::op::v4::Range>(zero, count, one, ov::element::i32),
                        std::make_shared<ov::op::v4::Range>(one, past_end, one, ov::element::i32)};
    ragged.insert(ragged.end(), strings.begin(), strings.end());
    return ragged;
}

std::vector<std::size_t> marker_ids(const GgufVocabulary& vocabulary) {
    std::vector<std::size_t> ids;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        if (is_marker(vocabulary.token_types[id]) && !vocabulary.tokens[id].empty()) {
            ids.push_back(id);
        }
    }
    return ids;
}

// Alternatives are tried in order, so the longest comes first: one marker may begin another.
std::string marker_pattern(const GgufVocabulary& vocabulary) {
    std::vector<std::string> texts;
    for (const auto id : marker_ids(vocabulary)) {
        texts.push_back(vocabulary.tokens[id]);
    }
    std::stable_sort(texts.begin(), texts.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
    std::string pattern;
    for (const auto& text : texts) {
        pattern += pattern.empty() ? "(" : "|";
        pattern += quote_pattern(text);
    }
    return pattern.empty() ? "(?!)" : pattern + ")";
}

OutputVector append(OutputVector inputs, const OutputVector& more) {
    inputs.insert(inputs.end(), more.begin(), more.end());
    return inputs;
}

OutputVector split(const TokenizerLibrary& library, const OutputVector& pieces,
                   const std::string& pattern) {
    return library.create("RegexSplit", append(pieces, {text_constant(pattern)}),
                          {{"behaviour", std::string("isolate")}, {"invert", false}});
}

// `pieces` are ragged strings with skip flags; normalization works on the strings alone.
OutputVector substitute(const TokenizerLibrary& library, const OutputVector& pieces,
                        const std::string& pattern, const std::string& replacement) {
    const OutputVector strings(pieces.begin() + 2, pieces.end());
    const auto changed = library.create(
        "RegexNormalization", append(strings, {text_constant(pattern), text_constant(replacement)}),
        {{"global_replace", true}});
    return append({pieces[0], pieces[1]}, changed);
}

OutputVector merge_pieces(const TokenizerLibrary& library, const OutputVector& pieces,
                          const GgufVocabulary& vocabulary, const MergeModel& model) {
    std::vector<std::string> lefts;
    std::vector<std::string> rights;
    for (const auto& [left, right] : model.merges) {
        lefts.push_back(left);
        rights.push_back(right);
    }
    std::vector<std::string> markers;
    std::vector<std::int32_t> ids;
    for (const auto id : marker_ids(vocabulary)) {
        markers.push_back(model.encode_tokens[id]);
        ids.push_back(static_cast<std::int32_t>(id));
    }
    OutputVector inputs(pieces.begin(), pieces.begin() + 5);
    inputs = append(inputs, string_constants(model.encode_tokens));
    inputs = append(inputs, string_constants(lefts));
    inputs = append(inputs, string_constants(rights));
    if (!markers.empty()) {
        inputs = append(append(inputs, string_constants(markers)), {id_constant(ids)});
    }
    return library.create("BPETokenizer", inputs,
                          {{"unk_token", model.unknown_token},
                           {"fuse_unk", true},
                           {"suffix_indicator", std::string()},
                           {"end_suffix", std::string()},
                           {"byte_fallback", true}});
}

// Ids in front of and behind the text, in one op so that Tokenizer and GenAI can switch them off.
OutputVector with_special_tokens(const TokenizerLibrary& library, const OutputVector& ids,
                                 const std::vector<std::int32_t>& front,
                                 const std::vector<std::int32_t>& back) {
    OutputVector inputs;
    std::vector<std::int32_t> segments;
    for (const auto* added : {&front, &back}) {
        if (added == &back) {
            inputs = append(inputs, {ids[0], ids[1], ids[2]});
            segments.push_back(0);
        }
        if (!added->empty()) {
            inputs = append(inputs, {scalar_constant(0),
                                     scalar_constant(static_cast<std::int32_t>(added->size())),
                                     id_constant(*added)});
            segments.push_back(0);
        }
    }
    const auto combined =
        library.create("CombineSegments", append(inputs, {id_constant(segments)}));
    return {combined.begin(), combined.begin() + 3};
}

ov::OutputVector dense_outputs(const TokenizerLibrary& library, const OutputVector& ids,
                               std::int64_t padding_id) {
    const auto lengths = std::make_shared<ov::op::v1::Subtract>(ids[1], ids[0]);
    const auto longest = std::make_shared<ov::op::v1::ReduceMax>(lengths, id_constant({0}), false);
    const auto padding = scalar_constant(static_cast<std::int32_t>(padding_id));
    const auto dense = library.create("RaggedToDense", {ids[0], ids[1], ids[2], longest, padding},
                                      {{"pad_right", false}, {"pad_max_length", false}});
    OutputVector outputs{std::make_shared<ov::op::v0::Convert>(dense[0], ov::element::i64),
                         std::make_shared<ov::op::v0::Convert>(dense[1], ov::element::i64)};
    outputs[0].get_tensor().set_names({"input_ids"});
    outputs[1].get_tensor().set_names({"attention_mask"});
    return outputs;
}

OutputVector byte_level_pieces(const TokenizerLibrary& library, OutputVector pieces,
                               const GgufPreTokenizer& pre_tokenizer) {
    for (const auto& pattern : pre_tokenizer.patterns) {
        pieces = split(library, pieces, pattern);
    }
    return pieces;
}

bool adds_space_prefix(const GgufVocabulary& vocabulary) {
    return vocabulary.model == "llama" && vocabulary.add_space_prefix.value_or(true);
}

bool metaspace_only_leads(const GgufVocabulary& vocabulary) {
    const std::string metaspace = "▁";
    for (const auto& token : vocabulary.tokens) {
        const auto text = token.find_first_not_of(metaspace);
        if (text != std::string::npos && token.find(metaspace, text) != std::string::npos) {
            return false;
        }
    }
    return true;
}

OutputVector sentence_piece_pieces(const TokenizerLibrary& library, OutputVector pieces,
                                   const GgufVocabulary& vocabulary) {
    if (adds_space_prefix(vocabulary)) {
        pieces = substitute(library, pieces, R"((?:^)([\s\S]))", "▁$1");
    }
    pieces = substitute(library, pieces, " ", "▁");
    // Typed text that looks like a byte token must not become that byte.
    pieces = split(library, pieces, R"((?<=<)0(?=x[0-9A-F]{2}>))");
    if (metaspace_only_leads(vocabulary)) {
        // No token crosses the start of a word, so words can be merged, and remembered, one by one.
        pieces = split(library, pieces, "▁*[^▁]+");
    }
    return pieces;
}

std::vector<std::int32_t> optional_id(bool wanted, const std::optional<std::int64_t>& id) {
    return wanted && id ? std::vector{static_cast<std::int32_t>(*id)} : std::vector<std::int32_t>{};
}

std::shared_ptr<ov::Model> tokenizer_model(const TokenizerLibrary& library,
                                           const GgufVocabulary& vocabulary,
                                           const MergeModel& model) {
    const auto text = std::make_shared<ov::op::v0::Parameter>(
        ov::element::string, ov::PartialShape{ov::Dimension::dynamic()});
    auto pieces = with_ragged_dimension(library.create("StringTensorUnpack", {text}));
    pieces = library.create("SpecialTokensSplit",
                            append(pieces, {text_constant(marker_pattern(vocabulary))}));
    bool add_bos = true;  // SentencePiece models expect it unless the file says otherwise
    if (vocabulary.model == "gpt2") {
        const auto pre_tokenizer = gguf_pre_tokenizer(vocabulary.pre);
        pieces = byte_level_pieces(library, pieces, pre_tokenizer);
        add_bos = pre_tokenizer.add_bos_by_default;
    } else {
        pieces = sentence_piece_pieces(library, pieces, vocabulary);
    }
    auto ids = merge_pieces(library, pieces, vocabulary, model);
    ids = with_special_tokens(library, ids,
                              optional_id(vocabulary.add_bos.value_or(add_bos), vocabulary.bos_id),
                              optional_id(vocabulary.add_eos.value_or(false), vocabulary.eos_id));
    return std::make_shared<ov::Model>(
        dense_outputs(library, ids, vocabulary.padding_id.value_or(0)), ov::ParameterVector{text},
        "tokenizer");
}

std::shared_ptr<ov::Model> detokenizer_model(const TokenizerLibrary& library,
                                             const GgufVocabulary& vocabulary,
                                             const MergeModel& model) {
    std::vector<std::int32_t> skipped;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        if (is_marker(vocabulary.token_types[id]) &&
            vocabulary.token_types[id] != GgufTokenType::kUserDefined) {
            skipped.push_back(static_cast<std::int32_t>(id));
        }
    }
    const auto ids = std::make_shared<ov::op::v0::Parameter>(
        ov::element::i64, ov::PartialShape{ov::Dimension::dynamic(), ov::Dimension::dynamic()});
    const auto narrow = std::make_shared<ov::op::v0::Convert>(ids, ov::element::i32);
    const auto selected = std::make_shared<ov::op::v8::Slice>(
        id_constant(skipped), id_constant({0}),
        id_constant({std::numeric_limits<std::int32_t>::max()}), id_constant({1}));
    const auto tokens =
        library.create("VocabDecoder",
                       append(append({narrow}, string_constants(model.decode_tokens)), {selected}));
    OutputVector text = library.create("FuzeRagged", {tokens.begin(), tokens.end() - 1});
    text.push_back(tokens.back());
    if (adds_space_prefix(vocabulary)) {
        text = library.create("RegexNormalization",
                              append(text, {text_constant("^ "), text_constant("")}),
                              {{"global_replace", true}});
    }
    text = library.create("UTF8Validate", text, {{"replace_mode", true}});
    auto packed = library.create("StringTensorPack", text);
    packed[0].get_tensor().set_names({"string_output"});
    return std::make_shared<ov::Model>(packed, ov::ParameterVector{ids}, "detokenizer");
}

std::vector<std::int64_t> end_ids(const GgufVocabulary& vocabulary) {
    std::set<std::int64_t> ids;
    for (const auto& id : {vocabulary.eos_id, vocabulary.eot_id, vocabulary.eom_id}) {
        if (id) {
            ids.insert(*id);
        }
    }
    std::map<std::string, std::int64_t> found;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        if (vocabulary.token_types[id] == GgufTokenType::kControl &&
            std::find(kEndOfTurnTexts.begin(), kEndOfTurnTexts.end(), vocabulary.tokens[id]) !=
                kEndOfTurnTexts.end()) {
            found.emplace(vocabulary.tokens[id], static_cast<std::int64_t>(id));
        }
    }
    if (found.contains("<|return|>") && found.contains("<|call|>")) {
        found.erase("<|end|>");  // there it ends one message of several in the same answer
    }
    for (const auto& [text, id] : found) {
        ids.insert(id);
    }
    return {ids.begin(), ids.end()};
}

void write_file(const std::filesystem::path& path, const std::string& content) {
    std::ofstream file(path, std::ios::binary);
    file << content;
    file.close();
    if (!file) {
        throw Error(ErrorCode::kResourceExhausted, fmt::format("cannot write {}", path.string()));
    }
}

}  // namespace

GgufTokenizerModels build_gguf_tokenizer(const ov::AnyMap& metadata) {
    const auto vocabulary = read_gguf_vocabulary(metadata);
    const auto library = TokenizerLibrary::open();
    const auto model = vocabulary.model == "gpt2" ? byte_level_model(vocabulary)
                                                  : sentence_piece_model(vocabulary);
    GgufTokenizerModels models;
    models.tokenizer = tokenizer_model(library, vocabulary, model);
    models.detokenizer = detokenizer_model(library, vocabulary, model);
    models.chat_template = vocabulary.chat_template;
    models.eos_token_ids = end_ids(vocabulary);
    const auto name_id = [&](const char* key, const std::optional<std::int64_t>& id) {
        if (id) {
            models.tokenizer->set_rt_info(*id, key);
            models.detokenizer->set_rt_info(*id, key);
        }
        return id ? vocabulary.tokens[static_cast<std::size_t>(*id)] : std::string();
    };
    models.bos_token = name_id("bos_token_id", vocabulary.bos_id);
    models.eos_token = name_id("eos_token_id", vocabulary.eos_id);
    name_id("pad_token_id", vocabulary.padding_id);
    return models;
}

void save_gguf_tokenizer(const GgufTokenizerModels& models,
                         const std::filesystem::path& directory) {
    try {
        ov::save_model(models.tokenizer, (directory / "openvino_tokenizer.xml").string(), false);
        ov::save_model(models.detokenizer, (directory / "openvino_detokenizer.xml").string(),
                       false);
    } catch (const ov::Exception& error) {
        throw Error(ErrorCode::kResourceExhausted,
                    fmt::format("cannot write the tokenizer into {}: {}", directory.string(),
                                error.what()));
    }
    if (!models.chat_template.empty()) {
        write_file(directory / "chat_template.jinja", models.chat_template);
    }
    nlohmann::json config{{"eos_token_ids", models.eos_token_ids}};
    if (!models.bos_token.empty()) {
        config["bos_token"] = models.bos_token;
    }
    if (!models.eos_token.empty()) {
        config["eos_token"] = models.eos_token;
    }
    write_file(directory / "tokenizer_config.json",
               config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace shardline
