#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace shardline {

// Keeps the order of members: a template that prints a tool's parameters prints them as sent.
using Json = nlohmann::ordered_json;

// Bounds that make a body of the allowed size also cheap: nesting is walked recursively when
// written, and an ordered object looks its members up one by one.
inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonMembers = 16384;  // of all objects together
inline constexpr std::size_t kMaxJsonValues = 1U << 20;

// Parses a client's body. Throws RequestError (400) on anything but one valid JSON object within
// the bounds; the message never quotes the body.
Json parse_body(const std::string& body);

// JSON text inside a string of the body: nothing when it is not JSON or passes the bounds.
std::optional<Json> parse_embedded(const std::string& text);

// One line, valid UTF-8 whatever the strings hold: bad bytes become U+FFFD.
std::string to_text(const Json& value);

}  // namespace shardline
