#pragma once

#include <cstdint>
#include <vector>

#include "step/step.hpp"

namespace shardline {

// The index inputs of a paged graph, written from a plan. With s spans and r rows:
//
//     past_lens            [s]      tokens before each span
//     subsequence_begins   [s + 1]  first row of each span, then r
//     block_indices        [...]    the spans' device blocks, one table after the other
//     block_indices_begins [s + 1]  first entry of each span's table, then the end
//     position_ids         [r]
//
// Kept between steps so that a step allocates nothing.
struct StepTables {
    std::vector<std::int32_t> past_lens;
    std::vector<std::int32_t> subsequence_begins;
    std::vector<std::int32_t> block_indices;
    std::vector<std::int32_t> block_indices_begins;
    std::vector<std::int64_t> position_ids;
    std::int32_t max_context_len = 0;

    // `device_blocks_per_block`: device block b*n .. b*n+n-1 make up block b. A device looks only
    // at the entries that hold the span's tokens, so trailing ones are left out.
    void fill(const StepPlan& plan, std::uint32_t device_blocks_per_block);

    // Behind the others, a span of one row that belongs to nobody: on the spare block, its result
    // unused.
    void add_companion();

    // A span of no tokens behind the others. The CPU's attention sums a step of one-token spans
    // in one of two orders, by whether there are at least as many spans as threads; any other
    // span in the step settles it, and one without tokens costs nothing and gives no row. With it
    // the bits depend neither on the company nor on the number of threads.
    void add_empty_span();
};

}  // namespace shardline
