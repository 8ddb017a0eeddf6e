#pragma once

#include <string>

#include "server/request_fields.hpp"

namespace shardline {

// The chat template's inputs (a JSON object) from "messages", "chat_template_kwargs" and the tool
// fields. Every content reaches the template as one string: text parts are joined by line breaks,
// in order, for every role; an assistant turn without content is an empty turn. The role
// "developer" is a system turn, since templates know no other name for it. Throws RequestError
// (400) whose `param` is like "messages[2].content".
std::string parse_chat_messages(const RequestFields& fields);

}  // namespace shardline
