#include "text/marker_guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "text/byte_alphabet.hpp"

namespace shardline {

namespace {

using nlohmann::ordered_json;

using Accept = bool (*)(const Marker&);

bool has_marker_shape(const Marker& marker) {
    const char first = marker.text.front();
    const char last = marker.text.back();
    return (first == '<' && last == '>') || (first == '[' && last == ']');
}

// A seal has to fit inside.
bool can_be_sealed(const Marker& marker) {
    return utf8_count(marker.text) >= 2;
}

bool sealed_everywhere(const Marker& marker) {
    return marker.is_control && can_be_sealed(marker);
}

bool sealed_for_clients(const Marker& marker) {
    return can_be_sealed(marker) && (marker.is_control || has_marker_shape(marker));
}

// Unicode keeps U+FDD0..U+FDEF free for such uses; the private areas follow in case a client
// sends all of those.
std::string unused_character(std::string_view inputs, std::string_view template_source) {
    for (std::uint32_t code = 0xFDD0; code != 0xF900; code = code == 0xFDEF ? 0xE000 : code + 1) {
        const std::string character{static_cast<char>(0xE0 | code >> 12),
                                    static_cast<char>(0x80 | (code >> 6 & 0x3F)),
                                    static_cast<char>(0x80 | (code & 0x3F))};
        if (inputs.find(character) == std::string_view::npos &&
            template_source.find(character) == std::string_view::npos) {
            return character;
        }
    }
    throw Error(ErrorCode::kInvalidArgument,
                "the messages use every private character there is, so no marker in them can be "
                "told from the template's");
}

class Sealer final {
public:
    Sealer(const MarkerFinder& finder, std::string seal)
        : finder_(finder), seal_(std::move(seal)) {}

    void seal_inputs(ordered_json& inputs) {
        for (auto& [name, value] : inputs.items()) {
            if (name == "messages" && value.is_array()) {
                for (auto& message : value) {
                    const bool from_model = message.is_object() && message.contains("role") &&
                                            message["role"] == "assistant";
                    seal_value(message, from_model ? sealed_everywhere : sealed_for_clients);
                }
            } else {
                seal_value(value, sealed_for_clients);
            }
        }
    }

    bool sealed_any() const { return sealed_any_; }

private:
    void seal_value(ordered_json& value, Accept accept) {
        if (value.is_string()) {
            auto& text = value.get_ref<std::string&>();
            if (auto sealed = seal_text(text, accept); sealed.size() != text.size()) {
                text = std::move(sealed);
                sealed_any_ = true;
            }
        } else if (value.is_array()) {
            for (auto& element : value) {
                seal_value(element, accept);
            }
        } else if (value.is_object()) {
            ordered_json sealed = ordered_json::object();
            for (auto& [key, element] : value.items()) {
                auto sealed_key = seal_text(key, accept);
                sealed_any_ |= sealed_key.size() != key.size();
                seal_value(element, accept);
                sealed[std::move(sealed_key)] = std::move(element);
            }
            value = std::move(sealed);
        }
    }

    std::string seal_text(std::string_view text, Accept accept) const {
        std::string sealed;
        std::size_t copied = 0;
        for (std::size_t at = 0; at < text.size(); ++at) {
            if (finder_.longest_at(text, at, accept) != nullptr) {
                const auto inside = at + utf8_length(static_cast<unsigned char>(text[at]));
                sealed += text.substr(copied, inside - copied);
                sealed += seal_;
                copied = inside;
            }
        }
        sealed += text.substr(copied);
        // The rest of a marker could stand at the start of the next text.
        return finder_.ends_inside_marker(text, accept) ? sealed + seal_ : sealed;
    }

    const MarkerFinder& finder_;
    std::string seal_;
    bool sealed_any_ = false;
};

std::string without(std::string_view text, std::string_view seal) {
    std::string rest;
    for (std::size_t at = 0; at < text.size();) {
        const auto found = std::min(text.find(seal, at), text.size());
        rest += text.substr(at, found - at);
        at = found + seal.size();
    }
    return rest;
}

}  // namespace

MarkerFinder::MarkerFinder(const std::vector<Marker>& markers) {
    for (const auto& marker : markers) {
        by_first_byte_.at(static_cast<unsigned char>(marker.text.front())).push_back(&marker);
        longest_bytes_ = std::max(longest_bytes_, marker.text.size());
    }
    for (auto& same_start : by_first_byte_) {
        std::stable_sort(same_start.begin(), same_start.end(), [](const auto* a, const auto* b) {
            return a->text.size() > b->text.size();
        });
    }
}

const Marker* MarkerFinder::longest_at(std::string_view text, std::size_t at, Accept accept) const {
    for (const auto* marker : by_first_byte_.at(static_cast<unsigned char>(text[at]))) {
        if ((accept == nullptr || accept(*marker)) &&
            text.compare(at, marker->text.size(), marker->text) == 0) {
            return marker;
        }
    }
    return nullptr;
}

bool MarkerFinder::ends_inside_marker(std::string_view text, Accept accept) const {
    const auto window = std::min(text.size(), longest_bytes_);
    for (std::size_t at = text.size() - window; at < text.size(); ++at) {
        const auto tail = text.substr(at);
        for (const auto* marker : by_first_byte_.at(static_cast<unsigned char>(tail.front()))) {
            if (tail.size() < marker->text.size() && accept(*marker) &&
                marker->text.compare(0, tail.size(), tail) == 0) {
                return true;
            }
        }
    }
    return false;
}

SealedInputs seal_markers(const std::string& inputs_json, const MarkerFinder& finder,
                          std::string_view template_source) {
    auto inputs = ordered_json::parse(inputs_json, nullptr, /*allow_exceptions=*/false);
    if (!inputs.is_object()) {
        throw Error(ErrorCode::kInvalidArgument, "the chat template's inputs are no JSON object");
    }
    auto seal = unused_character(inputs.dump(), template_source);
    Sealer sealer(finder, seal);
    sealer.seal_inputs(inputs);
    if (!sealer.sealed_any()) {
        return {inputs_json, {}};
    }
    return {inputs.dump(), std::move(seal)};
}

std::vector<PromptPart> unseal_prompt(std::string_view rendered, std::string_view seal,
                                      const MarkerFinder& finder) {
    std::vector<PromptPart> parts;
    const auto add = [&](std::string_view text, bool is_plain) {
        if (!parts.empty() && !is_plain && !parts.back().is_plain) {
            parts.back().text += text;
        } else if (!text.empty()) {
            parts.push_back({std::string(text), is_plain});
        }
    };
    const auto add_between = [&](std::string_view text) {
        if (text.find(seal) == std::string_view::npos) {
            add(text, false);
        } else {
            add(without(text, seal), true);
        }
    };
    std::size_t start = 0;
    for (std::size_t at = 0; at < rendered.size();) {
        const auto* marker = finder.longest_at(rendered, at);
        if (marker == nullptr) {
            ++at;
            continue;
        }
        add_between(rendered.substr(start, at - start));
        add(marker->text, false);
        at += marker->text.size();
        start = at;
    }
    add_between(rendered.substr(start));
    return parts;
}

}  // namespace shardline
