#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/bounded_json.hpp"

namespace shardline {

// A client's number as an error message shows it, cut short.
std::string shown(const Json& value);

[[noreturn]] void refuse_field(const std::string& field, const std::string& expected,
                               const Json& got);

// Typed, checked access to the members of one request object. A member that is null counts as
// absent, as in OpenAI's API. Everything else that does not fit throws RequestError (400) whose
// `param` is the member's name.
class RequestFields final {
public:
    explicit RequestFields(const Json& object) : object_(object) {}

    const Json* find(const std::string& name) const;  // null when absent

    std::optional<double> number(const std::string& name, double least, double most) const;
    std::optional<std::int64_t> integer(const std::string& name, std::int64_t least,
                                        std::int64_t most) const;
    // Counts such as max_tokens that may be absurdly large: clamped to `most`, at least `least`.
    std::optional<std::uint32_t> clamped_count(const std::string& name, std::uint32_t least,
                                               std::uint32_t most) const;
    std::optional<bool> boolean(const std::string& name) const;
    std::optional<std::string> text(const std::string& name) const;

private:
    const Json& object_;
};

}  // namespace shardline
