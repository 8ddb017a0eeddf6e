// Writes the tokenizer of a GGUF file as OpenVINO models: import_gguf_tokenizer FILE.gguf DIR
#include <exception>
#include <iostream>
#include <openvino/frontend/gguf/frontend.hpp>
#include <openvino/frontend/gguf/tokenizer_metadata.hpp>

#include "text/gguf_tokenizer.hpp"

int main(int argc, char** argv) {
    namespace gguf = ov::frontend::gguf;
    if (argc != 3) {
        std::cerr << "usage: import_gguf_tokenizer FILE.gguf DIR\n";
        return 2;
    }
    try {
        gguf::FrontEnd frontend;
        const auto model = frontend.convert(frontend.load(std::string(argv[1])));
        const auto metadata = model->get_rt_info()
                                  .at(gguf::gguf_tokenizer_metadata_key())
                                  .as<std::shared_ptr<gguf::GGUFTokenizerMetadata>>();
        shardline::save_gguf_tokenizer(shardline::build_gguf_tokenizer(metadata->config), argv[2]);
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
