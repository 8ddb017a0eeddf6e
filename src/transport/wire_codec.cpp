#include "transport/wire_codec.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/error.hpp"
#include "stage.pb.h"

namespace shardline {
namespace {

[[noreturn]] void refuse(const std::string& what) {
    throw Error(ErrorCode::kCorrupt, what);
}

void check_count(const char* what, int count, std::size_t limit) {
    if (static_cast<std::size_t>(count) > limit) {
        refuse(fmt::format("{} {}, the limit is {}", count, what, limit));
    }
}

void encode_tensor(Tensor&& tensor, wire::Tensor& message) {
    message.set_name(std::move(tensor.name));
    message.set_element_type(static_cast<std::uint32_t>(tensor.type));
    message.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    message.set_data(std::move(tensor.bytes));
}

ElementType decode_element_type(std::uint32_t number, const std::string& name) {
    if (number > static_cast<std::uint32_t>(ElementType::kBool)) {
        refuse(fmt::format("tensor '{}' has the unknown element type {}", name, number));
    }
    return static_cast<ElementType>(number);
}

Tensor decode_tensor(wire::Tensor& message, std::int64_t smallest_dimension) {
    Tensor tensor;
    tensor.name = std::move(*message.mutable_name());
    if (tensor.name.empty() || tensor.name.size() > kMaxTensorNameBytes) {
        refuse(fmt::format("a tensor's name has {} bytes, not 1 to {}", tensor.name.size(),
                           kMaxTensorNameBytes));
    }
    tensor.type = decode_element_type(message.element_type(), tensor.name);
    check_count("dimensions in a tensor", message.shape_size(), kMaxTensorRank);
    tensor.shape.assign(message.shape().begin(), message.shape().end());
    for (const std::int64_t dimension : tensor.shape) {
        if (dimension < smallest_dimension) {
            refuse(fmt::format("tensor '{}' has the dimension {}", tensor.name, dimension));
        }
    }
    const std::size_t bytes = num_elements(tensor.shape) * element_size_bytes(tensor.type);
    if (bytes != message.data().size()) {
        refuse(fmt::format("tensor '{}' should have {} bytes and has {}", tensor.name, bytes,
                           message.data().size()));
    }
    tensor.bytes = std::move(*message.mutable_data());
    return tensor;
}

template <typename Messages>
Activations decode_tensors(Messages& messages, std::int64_t smallest_dimension) {
    check_count("tensors in a frame", messages.size(), kMaxTensors);
    Activations tensors;
    tensors.reserve(static_cast<std::size_t>(messages.size()));
    for (wire::Tensor& message : messages) {
        Tensor tensor = decode_tensor(message, smallest_dimension);
        for (const Tensor& other : tensors) {
            if (other.name == tensor.name) {
                refuse(fmt::format("tensor '{}' comes twice in a frame", tensor.name));
            }
        }
        tensors.push_back(std::move(tensor));
    }
    return tensors;
}

void encode_timing(const StageTiming& timing, wire::StageTiming& message) {
    message.set_stage(timing.stage);
    message.set_queue_us(timing.queue_us);
    message.set_execute_us(timing.execute_us);
    message.set_bytes_in(timing.bytes_in);
}

template <typename Messages>
std::vector<StageTiming> decode_timings(const Messages& messages) {
    check_count("timings in a frame", messages.size(), kMaxTimings);
    std::vector<StageTiming> timings;
    for (const wire::StageTiming& message : messages) {
        timings.push_back(
            {message.stage(), message.queue_us(), message.execute_us(), message.bytes_in()});
    }
    return timings;
}

void encode_plan(const StepPlan& plan, wire::StepPlan& message) {
    message.set_epoch(to_number(plan.epoch));
    message.set_step(to_number(plan.step));
    for (const BlockCopy& copy : plan.copy_blocks) {
        wire::BlockCopy& added = *message.add_copy_blocks();
        added.set_from(to_number(copy.from));
        added.set_to(to_number(copy.to));
    }
    for (const Span& span : plan.spans) {
        wire::Span& added = *message.add_spans();
        added.set_sequence(to_number(span.sequence));
        added.set_past_len(span.past_len);
        added.set_num_tokens(span.num_tokens);
        added.mutable_block_table()->Reserve(static_cast<int>(span.block_table.size()));
        for (const BlockId block : span.block_table) {
            added.mutable_block_table()->AddAlreadyReserved(to_number(block));
        }
    }
    message.mutable_kept_rows()->Assign(plan.kept_rows.begin(), plan.kept_rows.end());
}

// Counts are checked before anything is allocated for them, the meaning by check_plan().
StepPlan decode_plan(const wire::StepPlan& message, const StepLimits& limits) {
    check_count("spans in a step", message.spans_size(), limits.max_rows);
    check_count("kept rows in a step", message.kept_rows_size(), limits.max_rows);
    check_count("block copies in a step", message.copy_blocks_size(), limits.num_blocks);
    const std::size_t max_table = limits.max_context / kBlockTokens + 1;
    StepPlan plan;
    plan.epoch = Epoch{message.epoch()};
    plan.step = StepId{message.step()};
    for (const wire::BlockCopy& copy : message.copy_blocks()) {
        plan.copy_blocks.push_back({BlockId{copy.from()}, BlockId{copy.to()}});
    }
    plan.spans.reserve(static_cast<std::size_t>(message.spans_size()));
    for (const wire::Span& from : message.spans()) {
        check_count("blocks in a span", from.block_table_size(), max_table);
        Span& span = plan.spans.emplace_back();
        span.sequence = SequenceId{from.sequence()};
        span.past_len = from.past_len();
        span.num_tokens = from.num_tokens();
        span.block_table.reserve(static_cast<std::size_t>(from.block_table_size()));
        for (const std::uint32_t block : from.block_table()) {
            span.block_table.push_back(BlockId{block});
        }
    }
    plan.kept_rows.assign(message.kept_rows().begin(), message.kept_rows().end());
    if (const std::string fault = check_plan(plan, limits); !fault.empty()) {
        refuse(fault);
    }
    return plan;
}

// Bytes of the UTF-8 character that begins at `at`; 0 when none does. Overlong forms, surrogates
// and what is past U+10FFFF are none.
std::size_t character_bytes(const std::string& text, std::size_t at) {
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    const unsigned lead = byte(at);
    const auto follows = [&](std::size_t i, unsigned from, unsigned to) {
        return byte(at + i) >= from && byte(at + i) <= to;
    };
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        return follows(1, 0x80, 0xBF) ? 2 : 0;
    }
    if (lead >= 0xE0 && lead <= 0xEF) {
        const unsigned from = lead == 0xE0 ? 0xA0 : 0x80;
        const unsigned to = lead == 0xED ? 0x9F : 0xBF;
        return follows(1, from, to) && follows(2, 0x80, 0xBF) ? 3 : 0;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        const unsigned from = lead == 0xF0 ? 0x90 : 0x80;
        const unsigned to = lead == 0xF4 ? 0x8F : 0xBF;
        return follows(1, from, to) && follows(2, 0x80, 0xBF) && follows(3, 0x80, 0xBF) ? 4 : 0;
    }
    return 0;
}

}  // namespace

std::string wire_text(std::string text) {
    std::size_t end = 0;
    while (end < text.size()) {
        std::size_t size = character_bytes(text, end);
        if (size == 0) {
            text[end] = '?';
            size = 1;
        }
        if (end + size > kMaxWireTextBytes) {
            break;
        }
        end += size;
    }
    text.resize(end);
    return text;
}

void encode_step(Step&& step, wire::Step& message) {
    encode_plan(step.plan, *message.mutable_plan());
    for (Tensor& tensor : step.activations) {
        encode_tensor(std::move(tensor), *message.add_activations());
    }
    for (const StageTiming& timing : step.timings) {
        encode_timing(timing, *message.add_timings());
    }
}

void encode_result(StepResult&& result, wire::StepResult& message) {
    message.set_epoch(to_number(result.epoch));
    message.set_step(to_number(result.step));
    message.set_status(static_cast<std::uint32_t>(result.status));
    message.set_error(wire_text(std::move(result.error)));
    for (Tensor& tensor : result.outputs) {
        encode_tensor(std::move(tensor), *message.add_outputs());
    }
    for (const StageTiming& timing : result.timings) {
        encode_timing(timing, *message.add_timings());
    }
}

Step decode_step(wire::Step&& message, const StepLimits& limits) {
    Step step;
    step.plan = decode_plan(message.plan(), limits);
    step.activations = decode_tensors(*message.mutable_activations(), 1);
    step.timings = decode_timings(message.timings());
    return step;
}

StepResult decode_result(wire::StepResult&& message) {
    if (message.status() > static_cast<std::uint32_t>(StepStatus::kFailed)) {
        refuse(fmt::format("a result has the unknown status {}", message.status()));
    }
    StepResult result;
    result.epoch = Epoch{message.epoch()};
    result.step = StepId{message.step()};
    result.status = static_cast<StepStatus>(message.status());
    result.error = wire_text(std::move(*message.mutable_error()));
    if (result.status != StepStatus::kDone && message.outputs_size() > 0) {
        refuse("a step that was not done has outputs");
    }
    result.outputs = decode_tensors(*message.mutable_outputs(), 0);
    result.timings = decode_timings(message.timings());
    return result;
}

}  // namespace shardline
