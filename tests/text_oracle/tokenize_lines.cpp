// Reads JSON lines {"text": ...} or {"ids": [...]} from stdin, writes what the tokenizer of a model
// directory makes of each: {"ids": [...], "plain": [...], "text": ...}. Usage: tokenize_lines DIR
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "text/tokenizer.hpp"

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: tokenize_lines DIR < lines.jsonl\n";
        return 2;
    }
    try {
        const auto tokenizer = shardline::Tokenizer::open(argv[1]);
        for (std::string line; std::getline(std::cin, line);) {
            const auto request = nlohmann::json::parse(line);
            nlohmann::json answer;
            if (request.contains("text")) {
                const auto text = request["text"].get<std::string>();
                answer["ids"] = tokenizer.encode(text, request.value("add_special", false));
                answer["plain"] = tokenizer.encode_plain(text);
            } else {
                answer["ids"] = request["ids"];
            }
            const auto ids = answer["ids"].get<std::vector<std::int64_t>>();
            answer["text"] = tokenizer.decode(ids, request.value("skip_special", true));
            std::cout << answer.dump() << '\n';
        }
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
