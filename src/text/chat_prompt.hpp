#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace shardline {

// Ids of a chat prompt. The template's own markers become control ids; what clients write never
// does, in whatever field it stands, so no message can end its turn or begin another. Starts with
// the begin-of-sequence token exactly once where the model wants one, whether or not the template
// writes it. Errors as ChatTemplate::render. Thread-safe.
std::vector<std::int64_t> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                      const std::string& inputs_json, bool add_generation_prompt);

// Ids of a raw prompt (/v1/completions): markers in it count, and a begin-of-sequence token typed
// by the client is not doubled. Thread-safe.
std::vector<std::int64_t> encode_completion(const Tokenizer& tokenizer, std::string_view text);

}  // namespace shardline
