// A GGUF file from anywhere: either refused with an Error, or every tensor lies within it.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "model/gguf_header.hpp"
#include "model/gguf_support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace shardline;
    try {
        const GgufHeader header = GgufHeader::parse(std::as_bytes(std::span(data, size)));
        for (const GgufTensor& tensor : header.tensors()) {
            SHARDLINE_INVARIANT(tensor.offset <= size && tensor.bytes <= size - tensor.offset);
            SHARDLINE_INVARIANT(tensor.offset % header.alignment() == 0);
            SHARDLINE_INVARIANT(tensor.bytes > 0 && !tensor.dimensions.empty());
        }
        for (const auto& [key, value] : header.metadata()) {
            header.text(key);
            header.number(key);
            header.real(key);
        }
        require_importable(header);
    } catch (const Error&) {
        // Refused, which is fine.
    }
    return 0;
}
