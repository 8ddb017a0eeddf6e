#include "text/tokenizer_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <openvino/core/attribute_visitor.hpp>
#include <openvino/op/ops.hpp>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "text/tokenizer_ops.hpp"

namespace shardline {

namespace {

using NodePtr = std::shared_ptr<ov::Node>;
using ov::op::v0::Constant;

constexpr std::int32_t kNoLimit = std::numeric_limits<std::int32_t>::max() - 64;

bool is_op(const ov::Node& node, std::string_view type) {
    return type == node.get_type_name();
}

std::vector<NodePtr> ops_of_type(const ov::Model& model, std::string_view type) {
    std::vector<NodePtr> found;
    for (const auto& node : model.get_ordered_ops()) {
        if (is_op(*node, type)) {
            found.push_back(node);
        }
    }
    return found;
}

std::shared_ptr<Constant> constant_input(const ov::Node& node, std::size_t index) {
    return ov::as_type_ptr<Constant>(node.get_input_node_shared_ptr(index));
}

std::optional<std::int32_t> scalar_input(const ov::Node& node, std::size_t index) {
    const auto constant = constant_input(node, index);
    if (constant == nullptr || ov::shape_size(constant->get_shape()) != 1 ||
        constant->get_element_type() != ov::element::i32) {
        return std::nullopt;
    }
    return constant->cast_vector<std::int32_t>().front();
}

void set_scalar_input(ov::Node& node, std::size_t index, std::int32_t value) {
    const auto shape = node.get_input_node_shared_ptr(index)->get_output_shape(0);
    node.input(index).replace_source_output(
        std::make_shared<Constant>(ov::element::i32, shape, std::vector<std::int32_t>{value}));
}

// Reads the list attribute of an extension op, whose class we do not have.
class ListAttribute final : public ov::AttributeVisitor {
public:
    explicit ListAttribute(std::string name) : name_(std::move(name)) {}

    using ov::AttributeVisitor::on_adapter;
    void on_adapter(const std::string&, ov::ValueAccessor<void>&) override {}
    void on_adapter(const std::string& name,
                    ov::ValueAccessor<std::vector<std::int32_t>>& adapter) override {
        if (name == name_) {
            values_ = adapter.get();
        }
    }

    const std::vector<std::int32_t>& values() const { return values_; }

private:
    std::string name_;
    std::vector<std::int32_t> values_;
};

std::vector<std::int32_t> skipped_ids(ov::Node& decoder) {
    if (decoder.get_input_size() < 5) {
        ListAttribute skipped("skip_tokens");
        decoder.visit_attributes(skipped);
        return skipped.values();
    }
    auto source = decoder.get_input_node_shared_ptr(4);
    if (ov::is_type<ov::op::v8::Slice>(source)) {
        source = source->get_input_node_shared_ptr(0);
    }
    const auto constant = ov::as_type_ptr<Constant>(source);
    return constant == nullptr ? std::vector<std::int32_t>{}
                               : constant->cast_vector<std::int32_t>();
}

// Number of pieces of a SentencePiece model: entries of field 1 of its protobuf message.
std::size_t count_pieces(const Constant& model) {
    const auto* bytes = static_cast<const unsigned char*>(model.get_data_ptr());
    const std::size_t size = model.get_byte_size();
    std::size_t at = 0;
    std::size_t count = 0;
    const auto varint = [&] {
        std::uint64_t value = 0;
        for (unsigned shift = 0; at < size && shift < 64; shift += 7) {
            const auto byte = bytes[at++];
            value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
            if ((byte & 0x80U) == 0) {
                break;
            }
        }
        return value;
    };
    while (at < size) {
        const auto tag = varint();
        if ((tag & 7U) != 2) {
            break;
        }
        const auto length = varint();
        count += tag >> 3 == 1 ? 1 : 0;
        at += std::min<std::uint64_t>(length, size - at);
    }
    return count;
}

void blank_strings(ov::Node& node, std::size_t first_input,
                   const std::vector<std::int64_t>& positions) {
    auto strings =
        read_string_constants(node.input_value(first_input), node.input_value(first_input + 1),
                              node.input_value(first_input + 2));
    for (const auto position : positions) {
        if (position >= 0 && static_cast<std::size_t>(position) < strings.size()) {
            strings[static_cast<std::size_t>(position)] =
                unmatchable_token(static_cast<std::size_t>(position));
        }
    }
    const auto constants = string_constants(strings);
    for (std::size_t index = 0; index < constants.size(); ++index) {
        node.input(first_input + index).replace_source_output(constants[index]);
    }
}

std::vector<std::int64_t> all_positions(std::size_t count) {
    std::vector<std::int64_t> positions(count);
    for (std::size_t index = 0; index < count; ++index) {
        positions[index] = static_cast<std::int64_t>(index);
    }
    return positions;
}

// Inputs of the BPE op: text 5, vocabulary 3, merges 3 or 6, then added tokens 3 and their ids.
std::optional<std::size_t> added_tokens_input(const ov::Node& merger) {
    const auto size = merger.get_input_size();
    return size == 15 || size == 18 ? std::optional(size - 4) : std::nullopt;
}

std::string pattern_of(const ov::Node& node, std::size_t index) {
    const auto constant = constant_input(node, index);
    return constant == nullptr ? std::string()
                               : std::string(static_cast<const char*>(constant->get_data_ptr()),
                                             constant->get_byte_size());
}

// One op between the joined tokens and the text; false when it is none we know.
bool add_rule(const ov::Node& node, TextRules& rules) {
    constexpr std::string_view kCleanUp = R"( ([\\.\\?\\!,])| ('[ms])| (') | ('[rv]e)| (n't))";
    if (is_op(node, "UTF8Validate")) {
        return true;
    }
    if (!is_op(node, "RegexNormalization") || node.get_input_size() != 5) {
        return false;
    }
    const auto pattern = pattern_of(node, 3);
    const auto replacement = pattern_of(node, 4);
    if (!rules.strip_leading_space && pattern == "^ " && replacement.empty()) {
        rules.strip_leading_space = true;
        return true;
    }
    if (!rules.strip_leading_space && pattern == "(^ )([^ ])" &&
        (replacement == "$2" || replacement == R"(\2)")) {
        rules.strip_leading_space = true;
        rules.strip_only_before_text = true;
        return true;
    }
    if (!rules.clean_up_spaces && pattern.find(kCleanUp) != std::string::npos &&
        (replacement == "$1" || replacement == R"(\1)")) {
        rules.clean_up_spaces = true;
        return true;
    }
    return false;
}

NodePtr only_consumer(const ov::Output<ov::Node>& output) {
    const auto targets = output.get_target_inputs();
    return targets.size() == 1 ? targets.begin()->get_node()->shared_from_this() : nullptr;
}

// Follows the chain from the joined tokens to the packed text, reading the rules off it.
bool read_rules(const ov::Output<ov::Node>& joined, TextRules& rules) {
    constexpr int kOpsMax = 16;
    auto node = only_consumer(joined);
    for (int count = 0; node != nullptr && count < kOpsMax; ++count) {
        if (is_op(*node, "StringTensorPack")) {
            return true;
        }
        if (!add_rule(*node, rules)) {
            return false;
        }
        node = only_consumer(node->output(0));
    }
    return false;
}

}  // namespace

AddedIds take_added_ids(ov::Model& tokenizer) {
    AddedIds added;
    for (const auto& combine : ops_of_type(tokenizer, "CombineSegments")) {
        bool behind_text = false;
        for (std::size_t input = 0; input + 3 < combine->get_input_size(); input += 3) {
            const auto first = scalar_input(*combine, input);
            const auto last = scalar_input(*combine, input + 1);
            const auto ids = constant_input(*combine, input + 2);
            if (!first || !last || ids == nullptr) {
                behind_text = true;  // a computed segment is the text itself
                continue;
            }
            const auto values = ids->cast_vector<std::int64_t>();
            auto& place = behind_text ? added.back : added.front;
            for (auto at = std::max(*first, 0);
                 at < *last && static_cast<std::size_t>(at) < values.size(); ++at) {
                place.push_back(values[static_cast<std::size_t>(at)]);
            }
            set_scalar_input(*combine, input + 1, *first);
        }
    }
    return added;
}

void disable_truncation(ov::Model& tokenizer) {
    for (const auto& truncate : ops_of_type(tokenizer, "Truncate")) {
        const auto limit = truncate->get_input_size() - 3;
        if (scalar_input(*truncate, limit)) {
            set_scalar_input(*truncate, limit, kNoLimit);
        }
    }
    // Older graphs, and those GenAI makes from GGUF files, cut by min(length, limit).
    for (const auto& minimum : ops_of_type(tokenizer, "Minimum")) {
        for (const std::size_t side : {0U, 1U}) {
            if (scalar_input(*minimum, side) &&
                is_op(*minimum->get_input_node_shared_ptr(1 - side), "Subtract")) {
                set_scalar_input(*minimum, side, kNoLimit);
            }
        }
    }
}

std::vector<std::int64_t> marker_ids(const ov::Model& tokenizer) {
    std::set<std::int64_t> ids;
    for (const auto& merger : ops_of_type(tokenizer, "BPETokenizer")) {
        if (const auto added = added_tokens_input(*merger)) {
            if (const auto constant = constant_input(*merger, *added + 3)) {
                for (const auto id : constant->cast_vector<std::int64_t>()) {
                    ids.insert(id);
                }
            }
        }
    }
    return {ids.begin(), ids.end()};
}

void make_text_plain(ov::Model& tokenizer, const std::vector<std::int64_t>& markers) {
    for (const auto& splitter : ops_of_type(tokenizer, "SpecialTokensSplit")) {
        const auto pattern = splitter->get_input_size() - 1;
        splitter->input(pattern).replace_source_output(text_constant("(?!)"));
        // A prefix for the very start of the prompt sits in front; the texts read here are never
        // at that place.
        const auto before = splitter->get_input_node_shared_ptr(2);
        if (is_op(*before, "RegexNormalization")) {
            for (std::size_t output = 0; output < 3; ++output) {
                before->output(output).replace(before->input_value(output));
            }
        }
    }
    for (const auto& splitter : ops_of_type(tokenizer, "RegexSplit")) {
        if (splitter->get_input_size() == 9) {  // older graphs name the markers here
            const auto count = ov::shape_size(splitter->get_input_shape(6));
            blank_strings(*splitter, 6, all_positions(count));
        }
    }
    for (const auto& merger : ops_of_type(tokenizer, "BPETokenizer")) {
        blank_strings(*merger, 5, markers);
        if (const auto added = added_tokens_input(*merger)) {
            const auto count = ov::shape_size(merger->get_input_shape(*added));
            blank_strings(*merger, *added, all_positions(count));
        }
    }
    for (const auto& unigram : ops_of_type(tokenizer, "UnigramTokenizer")) {
        blank_strings(*unigram, 5, markers);
    }
}

DetokenizerGraph take_apart_detokenizer(const std::shared_ptr<ov::Model>& detokenizer) {
    DetokenizerGraph graph;
    for (const auto& whole : ops_of_type(*detokenizer, "SentencepieceDetokenizer")) {
        if (const auto pieces = constant_input(*whole, 0)) {
            graph.vocab_size = count_pieces(*pieces);
        }
    }
    const auto decoders = ops_of_type(*detokenizer, "VocabDecoder");
    if (decoders.size() != 1) {
        return graph;
    }
    const auto& decoder = decoders.front();
    graph.vocab_size = ov::shape_size(decoder->get_input_shape(1));
    graph.special_ids = skipped_ids(*decoder);
    for (const auto& node : detokenizer->get_ordered_ops()) {
        const bool joins = is_op(*node, "FuzeRagged") || is_op(*node, "CharsToBytes");
        if (!joins || !read_rules(node->output(0), graph.rules)) {
            continue;
        }
        const auto next = only_consumer(node->output(0));
        if (decoder->get_input_size() == 5) {
            decoder->input(4).replace_source_output(id_constant({}));
        }
        graph.token_bytes = std::make_shared<ov::Model>(
            ov::OutputVector{next->input_value(0), next->input_value(1), next->input_value(2)},
            detokenizer->get_parameters(), "token_bytes");
        break;
    }
    return graph;
}

}  // namespace shardline
