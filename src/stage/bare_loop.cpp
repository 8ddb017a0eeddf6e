#include "stage/bare_loop.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <openvino/openvino.hpp>
#include <openvino/pass/manager.hpp>
#include <openvino/pass/sdpa_to_paged_attention.hpp>
#include <string>

#include "model/model_source.hpp"
#include "stage/device_settings.hpp"
#include "stage/kv_pool.hpp"
#include "step/step.hpp"

namespace shardline {

struct BareLoop::State {
    template <typename Value>
    void set(const char* name, std::size_t size, Value value) {
        ov::Tensor tensor(ov::element::from<Value>(), size > 0 ? ov::Shape{size} : ov::Shape{});
        std::fill_n(tensor.data<Value>(), tensor.get_size(), value);
        infer.set_tensor(name, tensor);
    }

    ov::Core core;
    ov::CompiledModel compiled;
    std::unique_ptr<KvPool> pool;
    ov::InferRequest infer;
};

BareLoop::BareLoop(const std::filesystem::path& model_directory, const StageSpec& spec)
    : state_(std::make_unique<State>()) {
    const auto graph = ModelSource::open(model_directory).read_graph();
    ov::pass::Manager passes;
    passes.register_pass<ov::pass::SDPAToPagedAttention>();
    passes.run_passes(graph);
    state_->compiled = state_->core.compile_model(graph, spec.device, compile_settings(spec));
    state_->pool = std::make_unique<KvPool>(state_->compiled, spec.num_blocks);
    state_->infer = state_->compiled.create_infer_request();
    state_->pool->bind(state_->infer);
    state_->set<std::int64_t>("input_ids", 1, 1);
}

BareLoop::~BareLoop() = default;

double BareLoop::run(std::uint32_t past_len, std::uint32_t num_steps) {
    const std::size_t num_blocks = (past_len + num_steps + kBlockTokens - 1) / kBlockTokens;
    ov::Tensor blocks(ov::element::i32, {num_blocks});
    std::iota(blocks.data<std::int32_t>(), blocks.data<std::int32_t>() + num_blocks, 1);
    state_->infer.set_tensor("block_indices", blocks);
    ov::Tensor pair(ov::element::i32, {2});
    pair.data<std::int32_t>()[0] = 0;
    pair.data<std::int32_t>()[1] = 1;
    state_->infer.set_tensor("subsequence_begins", pair);
    const auto start = std::chrono::steady_clock::now();
    for (std::uint32_t step = 0; step < num_steps; ++step) {
        const std::uint32_t past = past_len + step;
        const std::size_t used = past / kBlockTokens + 1;
        ov::Tensor begins(ov::element::i32, {2});
        begins.data<std::int32_t>()[0] = 0;
        begins.data<std::int32_t>()[1] = static_cast<std::int32_t>(used);
        state_->infer.set_tensor("block_indices", ov::Tensor(blocks, {0}, {used}));
        state_->infer.set_tensor("block_indices_begins", begins);
        state_->set<std::int64_t>("position_ids", 1, past);
        state_->set<std::int32_t>("past_lens", 1, static_cast<std::int32_t>(past));
        state_->set<std::int32_t>("max_context_len", 0, static_cast<std::int32_t>(past + 1));
        state_->infer.infer();
    }
    const auto passed = std::chrono::steady_clock::now() - start;
    return std::chrono::duration<double, std::milli>(passed).count() / num_steps;
}

}  // namespace shardline
