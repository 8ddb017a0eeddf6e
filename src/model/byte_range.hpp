#pragma once

#include <cstdint>

namespace shardline {

// Bytes [offset, offset + size) of openvino_model.bin.
struct ByteRange {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;

    std::uint64_t end() const { return offset + size; }
    bool operator==(const ByteRange&) const = default;
};

}  // namespace shardline
