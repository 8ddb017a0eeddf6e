#include "server/openai_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "server/api_error.hpp"
#include "server/chat_messages.hpp"
#include "server/request_fields.hpp"

namespace shardline {
namespace {

constexpr double kMaxTemperature = 2.0;
constexpr double kMaxRepetitionPenalty = 10.0;
constexpr double kMaxPenalty = 2.0;  // presence and frequency, either sign
constexpr double kMaxLogitBias = 100.0;

std::uint64_t drawn_seed() {
    std::random_device source;
    return (std::uint64_t{source()} << 32U) | source();
}

float as_float(std::optional<double> value, float otherwise) {
    return value ? static_cast<float>(*value) : otherwise;
}

std::vector<std::pair<std::int64_t, float>> parse_logit_bias(const RequestFields& fields,
                                                             std::uint32_t vocab_size) {
    std::vector<std::pair<std::int64_t, float>> biases;
    const Json* value = fields.find("logit_bias");
    if (value == nullptr) {
        return biases;
    }
    if (!value->is_object()) {
        refuse_field("logit_bias", "an object of token id to bias", *value);
    }
    if (value->size() > kMaxLogitBiasEntries) {
        throw RequestError(bad_request(fmt::format("'logit_bias' has {} entries; at most {} fit.",
                                                   value->size(), kMaxLogitBiasEntries),
                                       "logit_bias"));
    }
    for (const auto& [key, bias] : value->items()) {
        std::uint32_t id = 0;
        const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
        const bool is_id = failure == std::errc{} && end == key.data() + key.size();
        if (!is_id || id >= vocab_size) {
            refuse_field("logit_bias",
                         fmt::format("keyed by token ids from 0 to {}", vocab_size - 1), key);
        }
        const double amount = bias.is_number() ? bias.get<double>() : std::nan("");
        if (!(amount >= -kMaxLogitBias && amount <= kMaxLogitBias)) {
            refuse_field("logit_bias", fmt::format("biases from -{0} to {0}", kMaxLogitBias), bias);
        }
        biases.emplace_back(id, static_cast<float>(amount));
    }
    return biases;
}

SamplingParams parse_sampling(const RequestFields& fields, const RequestLimits& limits) {
    SamplingParams sampling = limits.default_sampling;
    sampling.temperature =
        as_float(fields.number("temperature", 0.0, kMaxTemperature), sampling.temperature);
    if (const auto top_p = fields.number("top_p", 0.0, 1.0)) {
        // A nucleus of mass 0 holds the most likely token alone, as any tiny mass does.
        sampling.top_p = std::max(static_cast<float>(*top_p), std::numeric_limits<float>::min());
    }
    // -1 means "off" in several clients, as 0 does here.
    if (const auto top_k = fields.integer("top_k", -1, std::numeric_limits<std::int32_t>::max())) {
        sampling.top_k = static_cast<std::uint32_t>(std::max<std::int64_t>(*top_k, 0));
    }
    sampling.min_p = as_float(fields.number("min_p", 0.0, 1.0), sampling.min_p);
    sampling.repetition_penalty =
        as_float(fields.number("repetition_penalty", 0.01, kMaxRepetitionPenalty),
                 sampling.repetition_penalty);
    sampling.presence_penalty = as_float(
        fields.number("presence_penalty", -kMaxPenalty, kMaxPenalty), sampling.presence_penalty);
    sampling.frequency_penalty = as_float(
        fields.number("frequency_penalty", -kMaxPenalty, kMaxPenalty), sampling.frequency_penalty);
    sampling.logit_bias = parse_logit_bias(fields, limits.vocab_size);
    const auto seed = fields.integer("seed", std::numeric_limits<std::int64_t>::min(),
                                     std::numeric_limits<std::int64_t>::max());
    sampling.seed = seed ? static_cast<std::uint64_t>(*seed) : drawn_seed();
    return sampling;
}

std::vector<std::string> parse_stop(const RequestFields& fields) {
    const Json* value = fields.find("stop");
    if (value == nullptr) {
        return {};
    }
    const Json list = value->is_array() ? *value : Json::array({*value});
    if (list.size() > kMaxStopStrings) {
        throw RequestError(
            bad_request(fmt::format("'stop' holds {} strings; at most {} are allowed.", list.size(),
                                    kMaxStopStrings),
                        "stop"));
    }
    std::vector<std::string> stop;
    for (const Json& item : list) {
        if (!item.is_string() || item.get_ref<const std::string&>().empty() ||
            item.get_ref<const std::string&>().size() > kMaxStopBytes) {
            refuse_field("stop",
                         fmt::format("a string of 1 to {} bytes, or a list of them", kMaxStopBytes),
                         item);
        }
        stop.push_back(item.get<std::string>());
    }
    return stop;
}

bool parse_include_usage(const RequestFields& fields) {
    const Json* value = fields.find("stream_options");
    if (value == nullptr) {
        return false;
    }
    if (!value->is_object()) {
        refuse_field("stream_options", "an object", *value);
    }
    return RequestFields(*value).boolean("include_usage").value_or(false);
}

void refuse_response_formats(const RequestFields& fields) {
    const Json* value = fields.find("response_format");
    if (value == nullptr) {
        return;
    }
    if (!value->is_object()) {
        refuse_field("response_format", "an object with a 'type'", *value);
    }
    const auto type = RequestFields(*value).text("type");
    if (type == "json_object" || type == "json_schema") {
        throw RequestError(bad_request(
            fmt::format("'response_format' of type '{}' is not supported yet; only 'text' is.",
                        *type),
            "response_format", "unsupported"));
    }
    if (type != "text") {
        refuse_field("response_format", "of type 'text'", *value);
    }
}

GenerationOptions parse_options(const RequestFields& fields, const RequestLimits& limits) {
    GenerationOptions options;
    options.model = fields.text("model").value_or("");
    options.sampling = parse_sampling(fields, limits);
    options.stop = parse_stop(fields);
    options.num_choices =
        static_cast<std::uint32_t>(fields.integer("n", 1, kMaxChoicesPerPrompt).value_or(1));
    options.ignore_eos = fields.boolean("ignore_eos").value_or(false);
    options.stream = fields.boolean("stream").value_or(false);
    options.include_usage = parse_include_usage(fields) && options.stream;
    refuse_response_formats(fields);
    return options;
}

void check_num_choices(std::size_t num_prompts, std::uint32_t num_choices,
                       const RequestLimits& limits) {
    if (num_prompts * num_choices > limits.max_choices) {
        throw RequestError(
            bad_request(fmt::format("{} prompts times n = {} are more than {} choices.",
                                    num_prompts, num_choices, limits.max_choices),
                        "n"));
    }
}

std::vector<std::int64_t> parse_token_ids(const Json& list, std::uint32_t vocab_size) {
    std::vector<std::int64_t> ids;
    ids.reserve(list.size());
    for (const Json& item : list) {
        if (!item.is_number_unsigned() || item.get<std::uint64_t>() >= vocab_size) {
            refuse_field("prompt", fmt::format("text or token ids from 0 to {}", vocab_size - 1),
                         item);
        }
        ids.push_back(item.get<std::int64_t>());
    }
    return ids;
}

std::vector<CompletionPrompt> parse_prompts(const RequestFields& fields,
                                            const RequestLimits& limits) {
    const Json* value = fields.find("prompt");
    const Json nothing;
    const char* expected = "a string, a list of strings, or a list of token ids";
    if (value == nullptr) {
        refuse_field("prompt", expected, nothing);
    }
    if (value->is_string()) {
        return {value->get<std::string>()};
    }
    if (!value->is_array() || value->empty()) {
        refuse_field("prompt", expected, *value);
    }
    if (value->front().is_number()) {
        return {parse_token_ids(*value, limits.vocab_size)};
    }
    check_num_choices(value->size(), 1, limits);
    std::vector<CompletionPrompt> prompts;
    for (const Json& item : *value) {
        if (item.is_string()) {
            prompts.emplace_back(item.get<std::string>());
        } else if (item.is_array() && !item.empty()) {
            prompts.emplace_back(parse_token_ids(item, limits.vocab_size));
        } else {
            refuse_field("prompt", expected, item);
        }
    }
    return prompts;
}

}  // namespace

ChatRequest parse_chat_request(const std::string& body, const RequestLimits& limits) {
    const Json object = parse_body(body);
    const RequestFields fields(object);
    ChatRequest request;
    request.options = parse_options(fields, limits);
    check_num_choices(1, request.options.num_choices, limits);
    const auto newer = fields.clamped_count("max_completion_tokens", 1, limits.context_length);
    const auto older = fields.clamped_count("max_tokens", 1, limits.context_length);
    request.options.max_tokens = newer ? newer : older;
    SamplingParams& sampling = request.options.sampling;
    sampling.logprobs = fields.boolean("logprobs").value_or(false);
    const auto top_logprobs = fields.integer("top_logprobs", 0, kMaxLogprobs);
    if (top_logprobs.value_or(0) > 0 && !sampling.logprobs) {
        throw RequestError(
            bad_request("'top_logprobs' needs 'logprobs' to be true.", "top_logprobs"));
    }
    sampling.num_logprobs = static_cast<std::uint32_t>(top_logprobs.value_or(0));
    request.template_inputs = parse_chat_messages(fields);
    return request;
}

CompletionRequest parse_completion_request(const std::string& body, const RequestLimits& limits) {
    const Json object = parse_body(body);
    const RequestFields fields(object);
    CompletionRequest request;
    request.options = parse_options(fields, limits);
    request.options.max_tokens = fields.clamped_count("max_tokens", 1, limits.context_length)
                                     .value_or(kDefaultCompletionTokens);
    if (const auto logprobs = fields.integer("logprobs", 0, kMaxLogprobs)) {
        request.options.sampling.logprobs = true;
        request.options.sampling.num_logprobs = static_cast<std::uint32_t>(*logprobs);
    }
    request.echo = fields.boolean("echo").value_or(false);
    if (request.echo && request.options.sampling.logprobs) {
        throw RequestError(
            bad_request("'echo' together with 'logprobs' is not supported yet.", "echo"));
    }
    if (!fields.text("suffix").value_or("").empty()) {
        throw RequestError(bad_request("'suffix' is not supported.", "suffix", "unsupported"));
    }
    const auto best_of = fields.integer("best_of", 1, kMaxChoicesPerPrompt);
    if (best_of && *best_of != request.options.num_choices) {
        throw RequestError(
            bad_request("'best_of' other than 'n' is not supported.", "best_of", "unsupported"));
    }
    request.prompts = parse_prompts(fields, limits);
    check_num_choices(request.prompts.size(), request.options.num_choices, limits);
    return request;
}

}  // namespace shardline
