#include "text/chat_prompt.hpp"

#include <algorithm>

#include "text/marker_guard.hpp"

namespace shardline {

namespace {

// What the tokenizer puts in front, unless it is there already.
std::vector<std::int64_t> with_front(const Tokenizer& tokenizer, std::vector<std::int64_t> ids) {
    const auto& front = tokenizer.front_ids();
    const bool is_there =
        ids.size() >= front.size() && std::equal(front.begin(), front.end(), ids.begin());
    if (!is_there) {
        ids.insert(ids.begin(), front.begin(), front.end());
    }
    return ids;
}

}  // namespace

std::vector<std::int64_t> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                      const std::string& inputs_json, bool add_generation_prompt) {
    const MarkerFinder finder(tokenizer.markers());
    const auto sealed = seal_markers(inputs_json, finder, chat_template.source());
    const auto rendered = chat_template.render(sealed.json, add_generation_prompt);
    if (sealed.seal.empty()) {
        return with_front(tokenizer, tokenizer.encode(rendered, false));
    }
    std::vector<std::int64_t> ids;
    for (const auto& part : unseal_prompt(rendered, sealed.seal, finder)) {
        const auto more =
            part.is_plain ? tokenizer.encode_plain(part.text) : tokenizer.encode(part.text, false);
        ids.insert(ids.end(), more.begin(), more.end());
    }
    return with_front(tokenizer, std::move(ids));
}

std::vector<std::int64_t> encode_completion(const Tokenizer& tokenizer, std::string_view text) {
    return with_front(tokenizer, tokenizer.encode(text, false));
}

}  // namespace shardline
