#include "step/step.hpp"

#include <limits>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

std::size_t element_size_bytes(ElementType type) {
    switch (type) {
        case ElementType::kF32:
        case ElementType::kI32: return 4;
        case ElementType::kF16:
        case ElementType::kBf16: return 2;
        case ElementType::kI8:
        case ElementType::kU8:
        case ElementType::kBool: return 1;
        case ElementType::kI64: return 8;
    }
    throw Error(ErrorCode::kCorrupt, "unknown tensor element type");
}

const char* element_type_name(ElementType type) {
    switch (type) {
        case ElementType::kF32: return "f32";
        case ElementType::kF16: return "f16";
        case ElementType::kBf16: return "bf16";
        case ElementType::kI8: return "i8";
        case ElementType::kU8: return "u8";
        case ElementType::kI32: return "i32";
        case ElementType::kI64: return "i64";
        case ElementType::kBool: return "bool";
    }
    return "unknown";
}

std::size_t num_elements(const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (std::int64_t dimension : shape) {
        if (dimension < 0) {
            throw Error(ErrorCode::kCorrupt, fmt::format("negative dimension {}", dimension));
        }
        const auto size = static_cast<std::size_t>(dimension);
        if (size != 0 && count > std::numeric_limits<std::size_t>::max() / 16 / size) {
            throw Error(ErrorCode::kCorrupt, "tensor shape overflows");
        }
        count *= size;
    }
    return count;
}

std::uint32_t num_rows(const StepPlan& plan) {
    std::uint32_t rows = 0;
    for (const Span& span : plan.spans) {
        rows += span.num_tokens;
    }
    return rows;
}

namespace {

std::string check_span(const Span& span, const StepLimits& limits) {
    if (span.num_tokens == 0) {
        return "a span holds no tokens";
    }
    const std::uint64_t context = std::uint64_t{span.past_len} + span.num_tokens;
    if (context > limits.max_context) {
        return fmt::format("a span reaches position {}, the limit is {}", context,
                           limits.max_context);
    }
    const std::uint64_t blocks = (context + kBlockTokens - 1) / kBlockTokens;
    if (span.block_table.size() != blocks) {
        return fmt::format("a span of {} positions names {} blocks, not {}", context,
                           span.block_table.size(), blocks);
    }
    for (BlockId block : span.block_table) {
        if (to_number(block) >= limits.num_blocks) {
            return fmt::format("block {} is outside the pool of {}", to_number(block),
                               limits.num_blocks);
        }
    }
    return {};
}

}  // namespace

std::string check_plan(const StepPlan& plan, const StepLimits& limits) {
    if (plan.spans.empty()) {
        return "a step holds no spans";
    }
    std::uint64_t rows = 0;
    for (const Span& span : plan.spans) {
        if (std::string fault = check_span(span, limits); !fault.empty()) {
            return fault;
        }
        rows += span.num_tokens;
        if (rows > limits.max_rows) {
            return fmt::format("a step holds more than {} rows", limits.max_rows);
        }
    }
    for (const BlockCopy& copy : plan.copy_blocks) {
        if (to_number(copy.from) >= limits.num_blocks || to_number(copy.to) >= limits.num_blocks) {
            return fmt::format("a block copy {} to {} is outside the pool of {}",
                               to_number(copy.from), to_number(copy.to), limits.num_blocks);
        }
    }
    std::int64_t previous = -1;
    for (std::uint32_t row : plan.kept_rows) {
        if (row >= rows || row <= previous) {
            return fmt::format("kept row {} is not ascending within {} rows", row, rows);
        }
        previous = row;
    }
    return {};
}

}  // namespace shardline
