// Reads JSON lines {"template": ..., "inputs": {...}, "add_generation_prompt": bool, "bos_token":
// ..., "eos_token": ...} from stdin; writes {"text": ...} or {"error": ..., "code": ...} for each.
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "text/chat_template.hpp"

namespace {

nlohmann::json render(const nlohmann::ordered_json& request) {
    try {
        const auto chat_template = shardline::ChatTemplate::parse(
            request.at("template"), request.value("bos_token", ""), request.value("eos_token", ""));
        return {{"text", chat_template.render(request.at("inputs").dump(),
                                              request.value("add_generation_prompt", false))}};
    } catch (const shardline::Error& error) {
        return {{"error", error.what()}, {"code", error_code_name(error.code())}};
    }
}

}  // namespace

int main() {
    try {
        for (std::string line; std::getline(std::cin, line);) {
            std::cout << render(nlohmann::ordered_json::parse(line)).dump() << '\n';
        }
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
