#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace shardline {

// Finds marker texts. Immutable; the markers must outlive it.
class MarkerFinder final {
public:
    explicit MarkerFinder(const std::vector<Marker>& markers);

    // The longest marker that starts at `at`; null when none does. Markers that `accept` refuses
    // do not count.
    const Marker* longest_at(std::string_view text, std::size_t at,
                             bool (*accept)(const Marker&) = nullptr) const;

    // True when the end of `text` is the beginning, but not all, of an accepted marker.
    bool ends_inside_marker(std::string_view text, bool (*accept)(const Marker&)) const;

private:
    std::array<std::vector<const Marker*>, 256> by_first_byte_;  // longest first
    std::size_t longest_bytes_ = 0;
};

// Chat inputs in which no client text spells a marker any more: a character that occurs nowhere
// else (the seal) stands inside each such spelling. Template string methods go on working, and the
// places can be told from the template's own markers after rendering.
struct SealedInputs {
    std::string json;
    std::string seal;  // empty when nothing had to be sealed; then json is the text given in
};

// Control tokens are sealed wherever a client can write: contents of any role, names, tools,
// arguments, keys. User-defined markers ("<tool_call>") are sealed everywhere but in assistant
// messages, where templates look for them and models wrote them. Throws Error(kInvalidArgument)
// when `inputs_json` is not a JSON object.
SealedInputs seal_markers(const std::string& inputs_json, const MarkerFinder& finder,
                          std::string_view template_source);

// Part of a rendered prompt.
struct PromptPart {
    std::string text;
    bool is_plain = false;  // no marker in it counts
};

// Cuts a rendering at its true markers; seals are gone from the parts. Plain parts are the
// stretches between two markers that held a seal.
std::vector<PromptPart> unseal_prompt(std::string_view rendered, std::string_view seal,
                                      const MarkerFinder& finder);

}  // namespace shardline
