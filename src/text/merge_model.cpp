#include "text/merge_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "text/byte_alphabet.hpp"
#include "text/tokenizer_ops.hpp"

namespace shardline {

namespace {

constexpr std::string_view kMetaspace = "▁";
// Longer pieces exist only as runs of one character; splitting them everywhere would be quadratic.
constexpr std::size_t kPieceBytesMax = 512;

struct ScoredMerge {
    std::string_view left;
    std::string_view right;
    float score;
};

using PieceIds = std::unordered_map<std::string_view, std::size_t>;

// Every way to put `piece` together from two known pieces, in the order of their ids: equal scores
// are settled as in the conversion of SentencePiece models that published tokenizers went through.
void append_splits(std::string_view piece, float score, const PieceIds& ids,
                   std::vector<ScoredMerge>& merges) {
    std::vector<std::pair<std::pair<std::size_t, std::size_t>, ScoredMerge>> found;
    for (std::size_t cut = utf8_length(static_cast<unsigned char>(piece.front()));
         cut < piece.size(); cut += utf8_length(static_cast<unsigned char>(piece[cut]))) {
        const auto left = ids.find(piece.substr(0, cut));
        const auto right = ids.find(piece.substr(cut));
        if (left != ids.end() && right != ids.end()) {
            found.push_back({{left->second, right->second}, {left->first, right->first, score}});
        }
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& entry : found) {
        merges.push_back(entry.second);
    }
}

bool takes_part_in_merges(const GgufVocabulary& vocabulary, std::size_t id) {
    const auto& token = vocabulary.tokens[id];
    if (token.empty() || token.size() > kPieceBytesMax) {
        return false;
    }
    // Runs of spaces are often declared user-defined; in text they come about by merging.
    return vocabulary.token_types[id] == GgufTokenType::kNormal ||
           (vocabulary.token_types[id] == GgufTokenType::kUserDefined &&
            token.find(kMetaspace) != std::string::npos);
}

std::optional<char> byte_of(const std::string& token) {
    if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') {
        return std::nullopt;
    }
    int value = 0;
    for (const char digit : {token[3], token[4]}) {
        if (digit >= '0' && digit <= '9') {
            value = value * 16 + (digit - '0');
        } else if (digit >= 'A' && digit <= 'F') {
            value = value * 16 + (digit - 'A' + 10);
        } else {
            return std::nullopt;
        }
    }
    return static_cast<char>(static_cast<unsigned char>(value));
}

std::string with_spaces(std::string token) {
    for (auto at = token.find(kMetaspace); at != std::string::npos;
         at = token.find(kMetaspace, at + 1)) {
        token.replace(at, kMetaspace.size(), " ");
    }
    return token;
}

}  // namespace

bool is_marker(GgufTokenType type) {
    return type == GgufTokenType::kControl || type == GgufTokenType::kUserDefined ||
           type == GgufTokenType::kUnknown;
}

MergeModel byte_level_model(const GgufVocabulary& vocabulary) {
    MergeModel model;
    model.decode_tokens.reserve(vocabulary.tokens.size());
    for (const auto& token : vocabulary.tokens) {
        model.decode_tokens.push_back(bytes_of_printable(token));
    }
    std::unordered_set<std::string_view> known;
    for (std::size_t id = 0; id < model.decode_tokens.size(); ++id) {
        known.insert(model.decode_tokens[id]);
    }
    for (std::size_t index = 0; index < vocabulary.merges.size(); ++index) {
        auto left = bytes_of_printable(vocabulary.merges[index].first);
        auto right = bytes_of_printable(vocabulary.merges[index].second);
        if (!known.contains(left) || !known.contains(right) || !known.contains(left + right)) {
            throw Error(ErrorCode::kCorrupt,
                        fmt::format("GGUF tokenizer metadata: \"merges\" entry {} names a token "
                                    "that is not in \"tokens\"",
                                    index));
        }
        model.merges.emplace_back(std::move(left), std::move(right));
    }
    model.encode_tokens = model.decode_tokens;
    for (std::size_t id = 0; id < model.encode_tokens.size(); ++id) {
        if (vocabulary.token_types[id] == GgufTokenType::kUnused ||
            model.encode_tokens[id].empty()) {
            model.encode_tokens[id] = unmatchable_token(id);
        }
    }
    return model;
}

MergeModel sentence_piece_model(const GgufVocabulary& vocabulary) {
    PieceIds ids;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        if (takes_part_in_merges(vocabulary, id)) {
            ids.emplace(vocabulary.tokens[id], id);
        }
    }
    std::vector<ScoredMerge> merges;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        if (takes_part_in_merges(vocabulary, id)) {
            append_splits(vocabulary.tokens[id], vocabulary.scores[id], ids, merges);
        }
    }
    std::stable_sort(merges.begin(), merges.end(),
                     [](const auto& a, const auto& b) { return a.score > b.score; });
    MergeModel model;
    std::unordered_set<std::string> made;
    for (const auto& merge : merges) {
        model.merges.emplace_back(merge.left, merge.right);
        made.insert(std::string(merge.left) + std::string(merge.right));
    }
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        const auto& token = vocabulary.tokens[id];
        const auto type = vocabulary.token_types[id];
        const auto byte = type == GgufTokenType::kByte ? byte_of(token) : std::nullopt;
        // A piece of several characters that no merge makes can never come out of SentencePiece.
        const bool reachable = is_marker(type) || byte || utf8_count(token) == 1 ||
                               (takes_part_in_merges(vocabulary, id) && made.contains(token));
        model.encode_tokens.push_back(reachable && !token.empty() ? token : unmatchable_token(id));
        model.decode_tokens.push_back(byte ? std::string(1, *byte) : with_spaces(token));
    }
    if (vocabulary.unknown_id) {
        model.unknown_token = vocabulary.tokens[static_cast<std::size_t>(*vocabulary.unknown_id)];
    }
    return model;
}

}  // namespace shardline
