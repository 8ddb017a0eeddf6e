#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace shardline {

// ---------------------------------------------------------------------------------------------
// What travels in one step. Plain data: the engine makes a StepPlan, the first part turns token
// ids into activations, every stage turns activations into activations, the last part into logits.
// ---------------------------------------------------------------------------------------------

inline constexpr std::uint32_t kBlockTokens = 32;  // tokens in a KV block, the same on every stage

// Block 0 of every pool belongs to nobody: companion spans that a stage adds (rule 2 of
// bit-reproducibility, see docs/decisions) and probes write there, and nothing is ever read back.
inline constexpr BlockId kSpareBlock{0};

// Sequence ids start at 1; 0 marks a span that belongs to nobody, on the spare block.
inline constexpr SequenceId kSpareSequence{0};

enum class ElementType : std::uint8_t { kF32, kF16, kBf16, kI8, kU8, kI32, kI64, kBool };

std::size_t element_size_bytes(ElementType type);
const char* element_type_name(ElementType type);

// A dense row-major tensor by value. `bytes` is a std::string because that is what protobuf moves
// in and out without a copy.
struct Tensor {
    std::string name;
    ElementType type = ElementType::kF32;
    std::vector<std::int64_t> shape;
    std::string bytes;

    bool operator==(const Tensor&) const = default;
};

// Elements the shape names; throws Error(kCorrupt) on a negative dimension or an overflow.
std::size_t num_elements(const std::vector<std::int64_t>& shape);

using Activations = std::vector<Tensor>;

// The KV of num_tokens tokens is computed at positions [past_len, past_len + num_tokens) of one
// sequence. block_table[i] holds positions [32*i, 32*i + 32); it has exactly
// ceil((past_len + num_tokens) / 32) entries. Spans of one step may share a table (verification).
struct Span {
    SequenceId sequence{};
    std::uint32_t past_len = 0;
    std::uint32_t num_tokens = 0;
    std::vector<BlockId> block_table;

    bool operator==(const Span&) const = default;
};

struct BlockCopy {
    BlockId from{};
    BlockId to{};

    bool operator==(const BlockCopy&) const = default;
};

// Rows of a step: the tokens of spans[0], then of spans[1], ...
//
//     rows   0 ........ n0-1 | n0 ...... n0+n1-1 | ...
//            span 0            span 1
//
// Copies are done before anything is computed. Only the rows in kept_rows (ascending, no
// duplicates) leave the last stage, in that order.
struct StepPlan {
    Epoch epoch{};
    StepId step{};
    std::vector<BlockCopy> copy_blocks;
    std::vector<Span> spans;
    std::vector<std::uint32_t> kept_rows;

    bool operator==(const StepPlan&) const = default;
};

std::uint32_t num_rows(const StepPlan& plan);

// Limits that make a plan from outside safe to execute.
struct StepLimits {
    std::uint32_t num_blocks = 0;   // pool size: block ids must be below it
    std::uint32_t max_rows = 0;     // rows in one step
    std::uint32_t max_context = 0;  // past_len + num_tokens of a span
};

// Empty when the plan keeps every rule above and the limits, else one sentence that says which
// rule is broken. Called on every frame from the wire before use.
std::string check_plan(const StepPlan& plan, const StepLimits& limits);

// Where a step's time went in one stage; appended by each stage as the step passes.
struct StageTiming {
    std::uint32_t stage = 0;       // index in the chain
    std::uint32_t queue_us = 0;    // from arrival to the start of execution
    std::uint32_t execute_us = 0;  // execution proper
    std::uint64_t bytes_in = 0;    // activation bytes that arrived

    bool operator==(const StageTiming&) const = default;
};

// A step on its way down the chain.
struct Step {
    StepPlan plan;
    Activations activations;
    std::vector<StageTiming> timings;
};

enum class StepStatus : std::uint8_t { kDone, kCancelled, kFailed };

// What comes back. `outputs` has one row per kept row when done and is empty otherwise; `error`
// names the stage and what happened when failed.
struct StepResult {
    Epoch epoch{};
    StepId step{};
    StepStatus status = StepStatus::kDone;
    std::string error;
    Activations outputs;
    std::vector<StageTiming> timings;
};

}  // namespace shardline
