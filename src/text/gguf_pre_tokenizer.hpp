#pragma once

#include <string>
#include <vector>

namespace shardline {

// How byte-level BPE text is cut into pieces before merging, by the name a GGUF file gives in
// `tokenizer.ggml.pre`.
struct GgufPreTokenizer {
    std::vector<std::string> patterns;  // each cuts the pieces of the one before, matches isolated
    bool add_bos_by_default = false;    // where the file does not say
};

// Throws Error(kUnsupported) naming a pre-tokenizer we do not know: a wrong one would give wrong
// ids without any other sign.
GgufPreTokenizer gguf_pre_tokenizer(const std::string& name);

}  // namespace shardline
