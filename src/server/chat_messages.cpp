#include "server/chat_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "server/api_error.hpp"

namespace shardline {
namespace {

constexpr std::size_t kMaxMessages = 4096;

std::string join_parts(const Json& parts, const std::string& field) {
    std::string joined;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::string part_field = fmt::format("{}[{}]", field, i);
        if (!parts[i].is_object()) {
            refuse_field(part_field, "an object with a 'type'", parts[i]);
        }
        const RequestFields part(parts[i]);
        const std::string type = part.find("type") != nullptr && part.find("type")->is_string()
                                     ? part.find("type")->get<std::string>()
                                     : "";
        if (type != "text") {
            throw RequestError(bad_request(
                fmt::format("'{}.type' must be \"text\": this server takes text only.", part_field),
                part_field + ".type"));
        }
        const Json* text = part.find("text");
        const Json nothing;
        if (text == nullptr || !text->is_string()) {
            refuse_field(part_field + ".text", "a string", text == nullptr ? nothing : *text);
        }
        joined += (i > 0 ? "\n" : "") + text->get<std::string>();
    }
    return joined;
}

std::string content_text(const Json* content, bool may_be_absent, const std::string& field) {
    const Json nothing;
    if (content == nullptr) {
        if (!may_be_absent) {
            refuse_field(field, "a string or a list of text parts", nothing);
        }
        return "";
    }
    if (content->is_string()) {
        return content->get<std::string>();
    }
    if (!content->is_array()) {
        refuse_field(field, "a string or a list of text parts", *content);
    }
    return join_parts(*content, field);
}

// The calls of an earlier assistant turn. Templates print arguments as an object, clients send
// them as JSON text: parsed where that works, kept as sent where not.
Json past_tool_calls(const Json& calls, const std::string& field) {
    if (!calls.is_array()) {
        refuse_field(field, "a list of calls", calls);
    }
    Json kept = Json::array();
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const std::string call_field = fmt::format("{}[{}]", field, i);
        if (!calls[i].is_object() || !calls[i].contains("function") ||
            !calls[i]["function"].is_object() || !calls[i]["function"].contains("name") ||
            !calls[i]["function"]["name"].is_string()) {
            refuse_field(call_field, "an object with a 'function' that has a 'name'", calls[i]);
        }
        Json call = calls[i];
        Json& arguments = call["function"]["arguments"];
        if (arguments.is_null()) {
            arguments = Json::object();
        } else if (arguments.is_string()) {
            const auto parsed = parse_embedded(arguments.get<std::string>());
            if (parsed && parsed->is_object()) {
                arguments = *parsed;
            }
        }
        kept.push_back(std::move(call));
    }
    return kept;
}

Json parse_message(const Json& message, std::size_t index) {
    constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                        "tool"};
    const std::string field = fmt::format("messages[{}]", index);
    if (!message.is_object()) {
        refuse_field(field, "an object with 'role' and 'content'", message);
    }
    const RequestFields fields(message);
    const Json nothing;
    const Json* role = fields.find("role");
    const bool known =
        role != nullptr && role->is_string() &&
        std::find(kRoles.begin(), kRoles.end(), role->get<std::string>()) != kRoles.end();
    if (!known) {
        refuse_field(field + ".role", "one of system, developer, user, assistant, tool",
                     role == nullptr ? nothing : *role);
    }
    const std::string name = role->get<std::string>();
    Json parsed = Json::object();
    parsed["role"] = name == "developer" ? "system" : name;
    parsed["content"] =
        content_text(fields.find("content"), name == "assistant", field + ".content");
    for (const char* extra : {"name", "tool_call_id"}) {
        const Json* value = fields.find(extra);
        if (value != nullptr && !value->is_string()) {
            refuse_field(fmt::format("{}.{}", field, extra), "a string", *value);
        }
        if (value != nullptr) {
            parsed[extra] = *value;
        }
    }
    const Json* calls = fields.find("tool_calls");
    if (name == "assistant" && calls != nullptr && !(calls->is_array() && calls->empty())) {
        parsed["tool_calls"] = past_tool_calls(*calls, field + ".tool_calls");
    }
    return parsed;
}

// Tools are accepted where the model is not asked to call them: with tool_choice "none" they are
// left out of the prompt.
void refuse_tools(const RequestFields& fields) {
    const Json* choice = fields.find("tool_choice");
    const bool is_none = choice != nullptr && choice->is_string() && *choice == "none";
    if (choice != nullptr && !is_none && !(choice->is_string() && *choice == "auto")) {
        throw RequestError(
            bad_request("'tool_choice' other than \"none\" or \"auto\" is not supported yet.",
                        "tool_choice", "unsupported"));
    }
    for (const char* name : {"tools", "functions"}) {
        const Json* tools = fields.find(name);
        if (tools == nullptr) {
            continue;
        }
        if (!tools->is_array()) {
            refuse_field(name, "a list", *tools);
        }
        if (!tools->empty() && !is_none) {
            throw RequestError(
                bad_request(fmt::format("'{}' are not supported yet; leave them out or send "
                                        "\"tool_choice\": \"none\".",
                                        name),
                            name, "unsupported"));
        }
    }
}

}  // namespace

std::string parse_chat_messages(const RequestFields& fields) {
    refuse_tools(fields);
    const Json* messages = fields.find("messages");
    const Json nothing;
    if (messages == nullptr || !messages->is_array() || messages->empty()) {
        refuse_field("messages", "a list of at least one message",
                     messages == nullptr ? nothing : *messages);
    }
    if (messages->size() > kMaxMessages) {
        throw RequestError(
            bad_request(fmt::format("'messages' holds {} turns; at most {} are allowed.",
                                    messages->size(), kMaxMessages),
                        "messages"));
    }
    Json inputs = Json::object();
    if (const Json* extra = fields.find("chat_template_kwargs")) {
        if (!extra->is_object()) {
            refuse_field("chat_template_kwargs", "an object", *extra);
        }
        inputs = *extra;
        inputs.erase("add_generation_prompt");
    }
    Json parsed = Json::array();
    for (std::size_t i = 0; i < messages->size(); ++i) {
        parsed.push_back(parse_message((*messages)[i], i));
    }
    inputs["messages"] = std::move(parsed);
    return to_text(inputs);
}

}  // namespace shardline
