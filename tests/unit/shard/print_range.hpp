#pragma once

#include <ostream>

#include "model/byte_range.hpp"

namespace shardline {

// How GoogleTest shows a range.
inline void PrintTo(const ByteRange& range, std::ostream* stream) {
    *stream << "[" << range.offset << "," << range.end() << ")";
}

}  // namespace shardline
