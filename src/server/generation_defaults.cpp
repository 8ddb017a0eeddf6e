#include "server/generation_defaults.hpp"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace shardline {
namespace {

double number_or(const nlohmann::json& config, const char* name, double otherwise, double least,
                 double most, const std::filesystem::path& file) {
    const auto found = config.find(name);
    if (found == config.end() || found->is_null()) {
        return otherwise;
    }
    if (!found->is_number() || found->get<double>() < least || found->get<double>() > most) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: '{}' must be a number from {} to {}", file.string(), name,
                                least, most));
    }
    return found->get<double>();
}

}  // namespace

SamplingParams openai_defaults() {
    SamplingParams defaults;
    defaults.temperature = 1.0F;
    return defaults;
}

SamplingParams read_generation_defaults(const std::filesystem::path& model_directory) {
    SamplingParams defaults = openai_defaults();
    const auto file = model_directory / "generation_config.json";
    std::ifstream input(file);
    if (!input) {
        return defaults;
    }
    const auto config = nlohmann::json::parse(input, nullptr, false);
    if (!config.is_object()) {
        throw Error(ErrorCode::kCorrupt, fmt::format("{} is not a JSON object", file.string()));
    }
    constexpr double kMaxTopK = std::numeric_limits<std::int32_t>::max();
    defaults.temperature =
        static_cast<float>(number_or(config, "temperature", 1.0, 0.0, 2.0, file));
    defaults.top_p = static_cast<float>(number_or(config, "top_p", 1.0, 1e-9, 1.0, file));
    defaults.min_p = static_cast<float>(number_or(config, "min_p", 0.0, 0.0, 1.0, file));
    defaults.top_k =
        static_cast<std::uint32_t>(number_or(config, "top_k", 0.0, 0.0, kMaxTopK, file));
    defaults.repetition_penalty =
        static_cast<float>(number_or(config, "repetition_penalty", 1.0, 0.01, 10.0, file));
    return defaults;
}

}  // namespace shardline
