#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/gguf_vocabulary.hpp"

namespace shardline {

// A vocabulary in the form the BPE op takes, whichever kind the GGUF file had.
struct MergeModel {
    std::vector<std::string> encode_tokens;                   // what text is matched against
    std::vector<std::string> decode_tokens;                   // the bytes each id stands for
    std::vector<std::pair<std::string, std::string>> merges;  // best first
    std::string unknown_token;                                // empty when there is none
};

// Byte-level BPE: tokens and merges from the printable alphabet to bytes.
MergeModel byte_level_model(const GgufVocabulary& vocabulary);

// SentencePiece BPE: merges from the scores of the pieces, "▁" for spaces, byte fallback.
MergeModel sentence_piece_model(const GgufVocabulary& vocabulary);

// Tokens whose text in a prompt is one id and never anything else.
bool is_marker(GgufTokenType type);

}  // namespace shardline
