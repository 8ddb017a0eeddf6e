#include "stage/ov_tensor.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

namespace {

const std::array<std::pair<ElementType, ov::element::Type>, 8>& type_pairs() {
    static const std::array<std::pair<ElementType, ov::element::Type>, 8> pairs = {{
        {ElementType::kF32, ov::element::f32},
        {ElementType::kF16, ov::element::f16},
        {ElementType::kBf16, ov::element::bf16},
        {ElementType::kI8, ov::element::i8},
        {ElementType::kU8, ov::element::u8},
        {ElementType::kI32, ov::element::i32},
        {ElementType::kI64, ov::element::i64},
        {ElementType::kBool, ov::element::boolean},
    }};
    return pairs;
}

}  // namespace

ElementType from_ov(ov::element::Type type) {
    for (const auto& [ours, theirs] : type_pairs()) {
        if (theirs == type) {
            return ours;
        }
    }
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a tensor of type {} does not travel", type.get_type_name()));
}

ov::element::Type to_ov(ElementType type) {
    for (const auto& [ours, theirs] : type_pairs()) {
        if (ours == type) {
            return theirs;
        }
    }
    throw Error(ErrorCode::kCorrupt, "unknown tensor element type");
}

ov::Shape shape_of_rows(const ov::PartialShape& shape, std::size_t rows) {
    ov::Shape concrete;
    bool rows_placed = false;
    for (const ov::Dimension& dimension : shape) {
        if (dimension.is_static()) {
            concrete.push_back(static_cast<std::size_t>(dimension.get_length()));
        } else {
            concrete.push_back(rows_placed ? 1 : rows);
            rows_placed = true;
        }
    }
    return concrete;
}

}  // namespace shardline
