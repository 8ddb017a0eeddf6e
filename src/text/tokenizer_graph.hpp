#pragma once

#include <cstdint>
#include <memory>
#include <openvino/core/model.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/detokenizer.hpp"

namespace shardline {

// What we need to know of, and change in, the graphs that openvino_tokenizers writes. The graphs
// must be freshly read: their ops remember patterns and vocabularies once they have run.

// Ids a tokenizer model puts around a text.
struct AddedIds {
    std::vector<std::int64_t> front;
    std::vector<std::int64_t> back;
};

// Takes them out of the graph: whether they are wanted is decided at each call.
AddedIds take_added_ids(ov::Model& tokenizer);

// A tokenizer must never lose part of a prompt without a word; limits are the engine's business.
void disable_truncation(ov::Model& tokenizer);

// Ids that the tokenizer model recognises as markers in text, beside the control tokens that its
// detokenizer names.
std::vector<std::int64_t> marker_ids(const ov::Model& tokenizer);

// Makes the graph read every text as plain text: `markers` no longer have ids of their own.
void make_text_plain(ov::Model& tokenizer, const std::vector<std::int64_t>& markers);

// The parts of a detokenizer graph.
struct DetokenizerGraph {
    // i64[?, ?] -> begins, ends, bytes of the joined tokens, nothing skipped; null when the graph
    // does not work token by token.
    std::shared_ptr<ov::Model> token_bytes;
    std::size_t vocab_size = 0;
    std::vector<std::int32_t> special_ids;
    TextRules rules;
};

// Rewires `detokenizer`, which is of no other use afterwards unless token_bytes is null.
DetokenizerGraph take_apart_detokenizer(const std::shared_ptr<ov::Model>& detokenizer);

}  // namespace shardline
