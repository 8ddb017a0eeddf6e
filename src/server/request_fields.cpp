#include "server/request_fields.hpp"

#include <fmt/format.h>

#include <cmath>

#include "server/api_error.hpp"

namespace shardline {

std::string shown(const Json& value) {
    constexpr std::size_t kShownBytes = 60;
    if (value.is_array()) {
        return "an array";
    }
    if (value.is_object()) {
        return "an object";
    }
    std::string text = to_text(value);
    if (text.size() > kShownBytes) {
        text.resize(kShownBytes);
        text += "...";
    }
    return text;
}

void refuse_field(const std::string& field, const std::string& expected, const Json& got) {
    throw RequestError(
        bad_request(fmt::format("'{}' must be {}; got {}.", field, expected, shown(got)), field));
}

const Json* RequestFields::find(const std::string& name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> RequestFields::number(const std::string& name, double least,
                                            double most) const {
    const Json* value = find(name);
    if (value == nullptr) {
        return std::nullopt;
    }
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (!(number >= least && number <= most)) {
        refuse_field(name, fmt::format("a number from {} to {}", least, most), *value);
    }
    return number;
}

std::optional<std::int64_t> RequestFields::integer(const std::string& name, std::int64_t least,
                                                   std::int64_t most) const {
    const Json* value = find(name);
    if (value == nullptr) {
        return std::nullopt;
    }
    // An unsigned number beyond int64 would turn negative in get<int64_t>.
    const bool fits = value->is_number_integer() &&
                      !(value->is_number_unsigned() &&
                        value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX));
    if (!fits || value->get<std::int64_t>() < least || value->get<std::int64_t>() > most) {
        refuse_field(name, fmt::format("an integer from {} to {}", least, most), *value);
    }
    return value->get<std::int64_t>();
}

std::optional<std::uint32_t> RequestFields::clamped_count(const std::string& name,
                                                          std::uint32_t least,
                                                          std::uint32_t most) const {
    const Json* value = find(name);
    if (value == nullptr) {
        return std::nullopt;
    }
    // 1e12 is a float in JSON but a whole number all the same.
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (!(number >= least) || std::floor(number) != number) {
        refuse_field(name, fmt::format("an integer of at least {}", least), *value);
    }
    return number >= most ? most : static_cast<std::uint32_t>(number);
}

std::optional<bool> RequestFields::boolean(const std::string& name) const {
    const Json* value = find(name);
    if (value == nullptr) {
        return std::nullopt;
    }
    if (!value->is_boolean()) {
        refuse_field(name, "true or false", *value);
    }
    return value->get<bool>();
}

std::optional<std::string> RequestFields::text(const std::string& name) const {
    const Json* value = find(name);
    if (value == nullptr) {
        return std::nullopt;
    }
    if (!value->is_string()) {
        refuse_field(name, "a string", *value);
    }
    return value->get<std::string>();
}

}  // namespace shardline
