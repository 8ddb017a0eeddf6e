// Builds a tokenizer from GGUF metadata written as JSON: build_tokenizer FILE.json DIR
// Lists of numbers become tensors, as OpenVINO's GGUF front end makes them.
#include <algorithm>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <openvino/openvino.hpp>

#include "text/gguf_tokenizer.hpp"

namespace {

ov::Any metadata_value(const nlohmann::json& value) {
    if (value.is_string()) {
        return value.get<std::string>();
    }
    if (value.is_array() && !value.empty() && value.front().is_string()) {
        return value.get<std::vector<std::string>>();
    }
    const auto list = value.is_array()
                          ? value.get<std::vector<double>>()
                          : std::vector{value.is_boolean() ? static_cast<double>(value.get<bool>())
                                                           : value.get<double>()};
    ov::Tensor tensor(ov::element::f64, value.is_array() ? ov::Shape{list.size()} : ov::Shape{});
    std::copy(list.begin(), list.end(), tensor.data<double>());
    return tensor;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::cerr << "usage: build_tokenizer FILE.json DIR\n";
        return 2;
    }
    try {
        ov::AnyMap metadata;
        std::ifstream file(argv[1]);
        const auto content = nlohmann::json::parse(file);
        for (const auto& [key, value] : content.items()) {
            metadata[key] = metadata_value(value);
        }
        shardline::save_gguf_tokenizer(shardline::build_gguf_tokenizer(metadata), argv[2]);
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
