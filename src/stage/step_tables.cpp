#include "stage/step_tables.hpp"

#include <algorithm>

namespace shardline {

void StepTables::fill(const StepPlan& plan, std::uint32_t device_blocks_per_block) {
    past_lens.clear();
    subsequence_begins.assign(1, 0);
    block_indices.clear();
    block_indices_begins.assign(1, 0);
    position_ids.clear();
    max_context_len = 0;
    const std::uint32_t device_tokens = kBlockTokens / device_blocks_per_block;
    for (const Span& span : plan.spans) {
        const std::uint32_t context = span.past_len + span.num_tokens;
        past_lens.push_back(static_cast<std::int32_t>(span.past_len));
        subsequence_begins.push_back(subsequence_begins.back() +
                                     static_cast<std::int32_t>(span.num_tokens));
        std::uint32_t left = (context + device_tokens - 1) / device_tokens;
        for (BlockId block : span.block_table) {
            const std::uint32_t first = to_number(block) * device_blocks_per_block;
            const std::uint32_t count = std::min(left, device_blocks_per_block);
            for (std::uint32_t i = 0; i < count; ++i) {
                block_indices.push_back(static_cast<std::int32_t>(first + i));
            }
            left -= count;
        }
        block_indices_begins.push_back(static_cast<std::int32_t>(block_indices.size()));
        for (std::uint32_t position = span.past_len; position < context; ++position) {
            position_ids.push_back(position);
        }
        max_context_len = std::max(max_context_len, static_cast<std::int32_t>(context));
    }
}

void StepTables::add_companion() {
    past_lens.push_back(0);
    subsequence_begins.push_back(subsequence_begins.back() + 1);
    block_indices.push_back(static_cast<std::int32_t>(to_number(kSpareBlock)));
    block_indices_begins.push_back(block_indices_begins.back() + 1);
    position_ids.push_back(0);
    max_context_len = std::max(max_context_len, 1);
}

void StepTables::add_empty_span() {
    past_lens.push_back(0);
    subsequence_begins.push_back(subsequence_begins.back());
    block_indices_begins.push_back(block_indices_begins.back());
}

}  // namespace shardline
