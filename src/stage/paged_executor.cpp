#include "stage/paged_executor.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/log.hpp"
#include "model/openvino_error.hpp"
#include "stage/device_settings.hpp"
#include "stage/kv_pool.hpp"
#include "stage/least_rows.hpp"
#include "stage/ov_tensor.hpp"
#include "stage/part_ports.hpp"
#include "stage/rows.hpp"
#include "stage/step_tables.hpp"

namespace shardline {

namespace {

class PagedExecutor final : public StageExecutor {
public:
    PagedExecutor(const StageSpec& spec, ov::CompiledModel compiled, std::int64_t vocabulary);

    Activations run(const StepPlan& plan, Activations activations) override;
    StepLimits limits() const override;

    // Kernels are made when first used: steps of each kind on the spare block, so that the first
    // user does not wait for them. Finds on the way how many rows a step needs.
    void warm_up();

    EffectiveSettings effective_settings() const override { return effective_; }

private:
    struct Table {
        std::string name;
        ov::PartialShape shape;
        ov::Tensor tensor;  // bound to the infer request for good
    };

    std::size_t compute(const StepPlan& plan, const Activations& activations,
                        const std::vector<std::uint32_t>& kept, std::size_t rows);
    std::string first_row_of(std::uint32_t rows, std::uint32_t num_kept);
    Activations made_up_rows(std::size_t rows) const;
    const std::vector<std::uint32_t>& all_rows(std::size_t rows);
    std::size_t rows_given(const StepPlan& plan, const Activations& activations) const;
    std::size_t num_companions(std::size_t rows) const;
    void bind_activations(const Activations& activations, std::size_t rows, std::size_t companions);
    void write_tables(const StepPlan& plan, const std::vector<std::uint32_t>& kept,
                      std::size_t companions);
    Activations empty_outputs() const;
    Tensor take_output(const ActivationPort& output, std::size_t computed_rows, std::size_t rows,
                       const std::vector<std::uint32_t>* gathered, std::string buffer);

    StageSpec spec_;
    std::string name_;
    EffectiveSettings effective_;
    ov::CompiledModel compiled_;
    KvPool pool_;
    ov::InferRequest infer_;
    PartPorts ports_;
    std::vector<Table> tables_;
    StepTables values_;
    std::map<std::string, ov::Tensor> filled_inputs_;  // by name: with rows of companions
    std::vector<std::uint32_t> all_rows_;              // 0, 1, 2, ...: "every row given is kept"
    std::vector<std::uint32_t> kept_;                  // the kept rows as the graph gets them
    std::uint32_t least_rows_ = 1;  // that a step needs for bits that stay the same
    std::uint32_t least_kept_ = 1;  // as above, of the rows that the head sees
    std::int64_t vocabulary_;       // ids must be below it; 0 without an embedding
    bool head_alone_;
    bool graph_gathers_;  // the graph picks the kept rows itself
};

template <typename Value>
void write_values(ov::Tensor& tensor, const Value* values, std::size_t count) {
    if (tensor.get_element_type() == ov::element::i32) {
        std::copy_n(values, count, tensor.data<std::int32_t>());
    } else {
        std::copy_n(values, count, tensor.data<std::int64_t>());
    }
}

PagedExecutor::PagedExecutor(const StageSpec& spec, ov::CompiledModel compiled,
                             std::int64_t vocabulary)
    : spec_(spec),
      name_(to_string(spec.range)),
      effective_(shardline::effective_settings(compiled)),
      compiled_(std::move(compiled)),
      pool_(compiled_, spec.num_blocks),
      infer_(compiled_.create_infer_request()),
      ports_(describe_ports(compiled_, spec.range)),
      vocabulary_(vocabulary),
      head_alone_(spec.range.with_head && !spec.range.with_embedding &&
                  spec.range.layers.size() == 0),
      graph_gathers_(ports_.has_table("kept_rows")) {
    check_honoured(effective_, spec.numeric);
    pool_.bind(infer_);
    for (const TablePort& table : ports_.tables) {
        const ov::PartialShape& shape = table.port.get_partial_shape();
        ov::Tensor tensor(table.port.get_element_type(), shape_of_rows(shape, spec.max_rows + 1));
        infer_.set_tensor(table.port, tensor);
        tables_.push_back({table.name, shape, std::move(tensor)});
    }
}

StepLimits PagedExecutor::limits() const {
    return {.num_blocks = spec_.num_blocks,
            .max_rows = spec_.max_rows,
            .max_context = spec_.max_context};
}

// All rows of the step, but for a head alone, which may be given the kept ones only.
std::size_t PagedExecutor::rows_given(const StepPlan& plan, const Activations& activations) const {
    const std::size_t rows = num_rows(plan);
    if (!head_alone_ || activations.empty() || activations.front().shape.empty()) {
        return rows;
    }
    const std::int64_t given = activations.front().shape.front();
    const auto kept = static_cast<std::int64_t>(plan.kept_rows.size());
    return given == kept ? plan.kept_rows.size() : rows;
}

void PagedExecutor::bind_activations(const Activations& activations, std::size_t rows,
                                     std::size_t companions) {
    check_activations(ports_, activations, rows, name_);
    for (const ActivationPort& input : ports_.inputs) {
        const Tensor& tensor = *find_tensor(activations, input.name);
        if (input.name == "input_ids") {
            check_token_ids(tensor, vocabulary_);
        }
        const ov::Shape shape = shape_of_rows(input.port.get_partial_shape(), rows + companions);
        const ov::element::Type type = input.port.get_element_type();
        const auto address = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
        if (address % type.size() == 0 && companions == 0) {
            // Inputs are only read, whatever the constructor over foreign memory wants.
            infer_.set_tensor(input.port,
                              ov::Tensor(type, shape, const_cast<char*>(tensor.bytes.data())));
        } else {
            ov::Tensor& copy = filled_inputs_[input.name];
            if (!copy) {
                copy = ov::Tensor(type, shape);
            }
            copy.set_shape(shape);  // its memory stays unless it grows
            char* end = static_cast<char*>(copy.data());
            end = std::copy(tensor.bytes.begin(), tensor.bytes.end(), end);
            for (std::size_t i = 0; i < companions; ++i) {  // each looks like the first row
                end = std::copy_n(tensor.bytes.begin(), tensor.bytes.size() / rows, end);
            }
            infer_.set_tensor(input.port, copy);
        }
    }
}

void PagedExecutor::write_tables(const StepPlan& plan, const std::vector<std::uint32_t>& kept,
                                 std::size_t companions) {
    values_.fill(plan, pool_.device_blocks_per_block());
    for (std::size_t i = 0; i < companions; ++i) {
        values_.add_companion();
    }
    const bool all_single = std::all_of(plan.spans.begin(), plan.spans.end(),
                                        [](const Span& span) { return span.num_tokens == 1; });
    if (all_single && effective_.device == "CPU") {
        values_.add_empty_span();
    }
    kept_ = kept;
    if (!kept.empty()) {
        const auto num_kept = static_cast<std::uint32_t>(kept.size());
        kept_.resize(std::max(least_kept_, filled_up_rows(num_kept, spec_.max_rows)), kept.front());
    }
    const auto write = [](Table& table, const auto& values) {
        table.tensor.set_shape(shape_of_rows(table.shape, values.size()));
        write_values(table.tensor, values.data(), values.size());
    };
    for (Table& table : tables_) {
        if (table.name == "past_lens") {
            write(table, values_.past_lens);
        } else if (table.name == "subsequence_begins") {
            write(table, values_.subsequence_begins);
        } else if (table.name == "block_indices") {
            write(table, values_.block_indices);
        } else if (table.name == "block_indices_begins") {
            write(table, values_.block_indices_begins);
        } else if (table.name == "position_ids") {
            write(table, values_.position_ids);
        } else if (table.name == "kept_rows") {
            write(table, kept_);
        } else {
            write_values(table.tensor, &values_.max_context_len, 1);
        }
    }
}

Activations PagedExecutor::empty_outputs() const {
    Activations outputs;
    for (const ActivationPort& output : ports_.outputs) {
        outputs.push_back({.name = output.name,
                           .type = output.type,
                           .shape = {0, static_cast<std::int64_t>(output.row_elements)},
                           .bytes = {}});
    }
    return outputs;
}

Tensor PagedExecutor::take_output(const ActivationPort& output, std::size_t computed_rows,
                                  std::size_t rows, const std::vector<std::uint32_t>* gathered,
                                  std::string buffer) {
    const ov::Tensor computed = infer_.get_tensor(output.port);
    if (computed.get_size() != computed_rows * output.row_elements) {
        throw Error(
            ErrorCode::kInternal,
            fmt::format("part {} computed '{}' of {} elements for {} rows of {}", name_,
                        output.name, computed.get_size(), computed_rows, output.row_elements));
    }
    const std::size_t row_bytes = output.row_elements * element_size_bytes(output.type);
    const char* bytes = static_cast<const char*>(computed.data());
    if (gathered != nullptr) {
        gather_rows(bytes, row_bytes, *gathered, buffer);
    } else {
        buffer.assign(bytes, rows * row_bytes);
    }
    const std::size_t kept = gathered != nullptr ? gathered->size() : rows;
    const auto fault = find_not_finite(buffer.data(), kept * output.row_elements, output.type);
    if (fault) {
        throw Error(
            ErrorCode::kInternal,
            fmt::format("part {} computed a NaN or an infinity: row {} of '{}', column {}", name_,
                        *fault / output.row_elements, output.name, *fault % output.row_elements));
    }
    return {
        .name = output.name,
        .type = output.type,
        .shape = {static_cast<std::int64_t>(kept), static_cast<std::int64_t>(output.row_elements)},
        .bytes = std::move(buffer)};
}

const std::vector<std::uint32_t>& PagedExecutor::all_rows(std::size_t rows) {
    all_rows_.resize(rows);
    std::iota(all_rows_.begin(), all_rows_.end(), 0U);
    return all_rows_;
}

std::size_t PagedExecutor::num_companions(std::size_t rows) const {
    const auto given = static_cast<std::uint32_t>(rows);
    return given == 0 ? 0 : std::max(least_rows_, filled_up_rows(given, spec_.max_rows)) - given;
}

// Gives the rows of the outputs: kept ones where the graph gathers, else all; after them come
// those of companions.
std::size_t PagedExecutor::compute(const StepPlan& plan, const Activations& activations,
                                   const std::vector<std::uint32_t>& kept, std::size_t rows) {
    const std::size_t companions = num_companions(rows);
    bind_activations(activations, rows, companions);
    try {
        pool_.copy(plan.copy_blocks);
        write_tables(plan, kept, companions);
        infer_.infer();
        return graph_gathers_ ? kept_.size() : rows + companions;
    } catch (const ov::Exception& fault) {
        throw Error(ErrorCode::kInternal, fmt::format("part {} could not be computed: {}", name_,
                                                      openvino_reason(fault.what())));
    }
}

Activations PagedExecutor::run(const StepPlan& plan, Activations activations) {
    const std::size_t rows = rows_given(plan, activations);
    const bool given_kept_only = head_alone_ && rows == plan.kept_rows.size();
    if (given_kept_only && rows == 0) {
        bind_activations(activations, rows, 0);
        return empty_outputs();
    }
    const std::vector<std::uint32_t>& kept = given_kept_only ? all_rows(rows) : plan.kept_rows;
    const std::size_t computed_rows = compute(plan, activations, kept, rows);
    const bool ends_here = spec_.range.with_head || spec_.keeps_rows;
    const std::size_t rows_out = graph_gathers_ ? kept.size() : rows;
    const std::vector<std::uint32_t>* gathered = ends_here && !graph_gathers_ ? &kept : nullptr;
    Activations outputs;
    outputs.reserve(ports_.outputs.size());
    for (std::size_t i = 0; i < ports_.outputs.size(); ++i) {
        // What came in is spent: its memory carries what goes out, and a step allocates nothing.
        std::string buffer = i < activations.size() ? std::move(activations[i].bytes) : "";
        outputs.push_back(
            take_output(ports_.outputs[i], computed_rows, rows_out, gathered, std::move(buffer)));
    }
    return outputs;
}

Activations PagedExecutor::made_up_rows(std::size_t rows) const {
    Activations activations;
    for (const ActivationPort& input : ports_.inputs) {
        const std::size_t elements = rows * input.row_elements;
        Tensor tensor{.name = input.name,
                      .type = input.type,
                      .shape = {static_cast<std::int64_t>(rows),
                                static_cast<std::int64_t>(input.row_elements)},
                      .bytes = std::string(elements * element_size_bytes(input.type), '\0')};
        if (input.type == ElementType::kF32) {
            std::minstd_rand random(1);
            std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
            for (std::size_t i = 0; i < elements; ++i) {
                const float value = uniform(random);
                std::memcpy(tensor.bytes.data() + i * sizeof value, &value, sizeof value);
            }
        }
        activations.push_back(std::move(tensor));
    }
    return activations;
}

// Bits of the first of `rows` one-token spans, of which the first `num_kept` are kept. Each has a
// place of its own in the spare block, so that none reads what another writes at the same time.
std::string PagedExecutor::first_row_of(std::uint32_t rows, std::uint32_t num_kept) {
    StepPlan plan;
    for (std::uint32_t i = 0; i < rows; ++i) {
        plan.spans.push_back({.sequence = kSpareSequence,
                              .past_len = i,
                              .num_tokens = 1,
                              .block_table = {kSpareBlock}});
    }
    compute(plan, made_up_rows(rows), all_rows(num_kept), rows);
    std::string bits;
    for (const ActivationPort& output : ports_.outputs) {
        const ov::Tensor computed = infer_.get_tensor(output.port);
        bits.append(static_cast<const char*>(computed.data()),
                    output.row_elements * element_size_bytes(output.type));
    }
    return bits;
}

void PagedExecutor::warm_up() {
    const std::uint32_t most = std::min(spec_.max_rows, spec_.max_context);
    const std::uint32_t rows =
        least_rows(most, [this](std::uint32_t n) { return first_row_of(n, 1); });
    const std::uint32_t kept =
        graph_gathers_
            ? least_rows(most, [&](std::uint32_t n) { return first_row_of(std::max(n, rows), n); })
            : 1;
    // What else a device does by the number of rows shows only with a long past: rule 2 as it is.
    least_rows_ = effective_.device == "CPU" ? rows : std::max(rows, 2U);
    least_kept_ = kept;
    room_logger("stage")->debug("part {}: bits are the same from {} rows on, {} in the head", name_,
                                least_rows_, least_kept_);
    StepPlan prompt;
    prompt.spans.push_back({.sequence = kSpareSequence,
                            .past_len = 0,
                            .num_tokens = std::min(most, kBlockTokens),
                            .block_table = {kSpareBlock}});
    compute(prompt, made_up_rows(num_rows(prompt)), {0}, num_rows(prompt));
}

void check_device(ov::Core& core, const std::string& device) {
    const std::vector<std::string> devices = core.get_available_devices();
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
        throw Error(ErrorCode::kNotFound, fmt::format("there is no device '{}' here, only {}",
                                                      device, fmt::join(devices, ", ")));
    }
}

}  // namespace

std::unique_ptr<StageExecutor> make_paged_executor(std::shared_ptr<ov::Model> graph,
                                                   const StageSpec& spec,
                                                   const LoadProgress& progress) {
    ov::Core core;
    check_device(core, spec.device);
    progress("compile", 0.2);
    try {
        const std::int64_t vocabulary = num_embedding_rows(*graph);
        ov::CompiledModel compiled = core.compile_model(graph, spec.device, compile_settings(spec));
        graph.reset();
        auto executor = std::make_unique<PagedExecutor>(spec, std::move(compiled), vocabulary);
        progress("warm up", 0.9);
        executor->warm_up();
        return executor;
    } catch (const ov::Exception& fault) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("device {} cannot compile part {}: {}", spec.device,
                                to_string(spec.range), openvino_reason(fault.what())));
    }
}

}  // namespace shardline
