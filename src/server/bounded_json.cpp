#include "server/bounded_json.hpp"

#include <fmt/format.h>

#include "server/api_error.hpp"

namespace shardline {
namespace {

// Empty when the text keeps the bounds, else the sentence that says which one it breaks. Counts
// structure without building anything; strings are skipped, nothing else is checked here.
std::string broken_bound(const std::string& body) {
    std::size_t depth = 0;
    std::size_t members = 0;
    std::size_t values = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < body.size(); ++i) {
        const char c = body[i];
        if (in_string) {
            if (c == '\\') {
                ++i;
            } else if (c == '"') {
                in_string = false;
            }
            continue;
        }
        switch (c) {
            case '"': in_string = true; break;
            case '[':
            case '{':
                ++values;
                if (++depth > kMaxJsonDepth) {
                    return fmt::format("The body is nested deeper than {} levels.", kMaxJsonDepth);
                }
                break;
            case ']':
            case '}': depth -= depth > 0 ? 1 : 0; break;
            case ',': ++values; break;
            case ':': ++members; break;
            default: break;
        }
    }
    if (members > kMaxJsonMembers) {
        return fmt::format("The body has more than {} object members.", kMaxJsonMembers);
    }
    if (values > kMaxJsonValues) {
        return fmt::format("The body has more than {} values.", kMaxJsonValues);
    }
    return "";
}

void require(bool holds, const std::string& message) {
    if (!holds) {
        throw RequestError(bad_request(message));
    }
}

}  // namespace

Json parse_body(const std::string& body) {
    require(!body.empty(), "The body is empty; a JSON object is expected.");
    const std::string broken = broken_bound(body);
    require(broken.empty(), broken);
    Json parsed;
    try {
        parsed = Json::parse(body);
    } catch (const Json::parse_error& error) {
        throw RequestError(
            bad_request(fmt::format("The body is not valid JSON (at byte {}).", error.byte)));
    } catch (const Json::exception&) {
        throw RequestError(bad_request("The body holds a number that is out of range."));
    }
    require(parsed.is_object(), "The body must be a JSON object.");
    return parsed;
}

std::optional<Json> parse_embedded(const std::string& text) {
    if (!broken_bound(text).empty()) {
        return std::nullopt;
    }
    try {
        return Json::parse(text);
    } catch (const Json::exception&) {
        return std::nullopt;  // a model's own earlier output need not be JSON
    }
}

std::string to_text(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace shardline
