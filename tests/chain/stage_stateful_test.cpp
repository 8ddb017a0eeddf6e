// The paged path against the graph as published, run statefully by plain OpenVINO.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <openvino/openvino.hpp>
#include <string>
#include <vector>

#include "chain/stage_chain.hpp"
#include "model/model_source.hpp"
#include "stage/device_settings.hpp"

namespace shardline::stage_test {
namespace {

constexpr std::uint32_t kPromptTokens = 90;
constexpr std::uint32_t kGeneratedTokens = 16;

// One sequence; its KV is the infer request's state.
class StatefulModel final {
public:
    StatefulModel(const std::filesystem::path& directory, const NumericSettings& numeric) {
        StageSpec spec;
        spec.numeric = numeric;
        ov::Core core;
        compiled_ = core.compile_model(ModelSource::open(directory).read_graph(), "CPU",
                                       compile_settings(spec));
        infer_ = compiled_.create_infer_request();
    }

    LogitRows run(const std::vector<std::int64_t>& tokens) {
        const std::size_t count = tokens.size();
        for (const auto& port : compiled_.inputs()) {
            const std::string name = port.get_any_name();
            if (name == "beam_idx") {
                infer_.set_tensor(port, filled<std::int32_t>({1}, 0));
            } else if (name == "attention_mask") {
                infer_.set_tensor(port, filled<std::int64_t>({1, past_len_ + count}, 1));
            } else if (name == "input_ids" || name == "position_ids") {
                ov::Tensor tensor(ov::element::i64, {1, count});
                for (std::size_t i = 0; i < count; ++i) {
                    tensor.data<std::int64_t>()[i] =
                        name == "input_ids" ? tokens[i] : static_cast<std::int64_t>(past_len_ + i);
                }
                infer_.set_tensor(port, tensor);
            }
        }
        infer_.infer();
        past_len_ += count;
        const ov::Tensor logits = infer_.get_tensor("logits");
        const std::size_t width = logits.get_shape().back();
        LogitRows rows;  // of all tokens, or of the last where the graph slices it off
        for (std::size_t i = 0; i < logits.get_size() / width; ++i) {
            const float* row = logits.data<const float>() + i * width;
            rows.emplace_back(row, row + width);
        }
        return rows;
    }

private:
    template <typename Value>
    static ov::Tensor filled(const ov::Shape& shape, Value value) {
        ov::Tensor tensor(ov::element::from<Value>(), shape);
        std::fill_n(tensor.data<Value>(), tensor.get_size(), value);
        return tensor;
    }

    ov::CompiledModel compiled_;
    ov::InferRequest infer_;
    std::size_t past_len_ = 0;
};

class Stateful : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        const bool tiny = std::string(GetParam()) != "smollm2";
        const char* variable = tiny ? "SHARDLINE_TINY_MODELS" : "SHARDLINE_SMOLLM2";
        const char* value = std::getenv(variable);
        if (value == nullptr || !std::filesystem::exists(value)) {
            GTEST_SKIP() << variable << " names no directory";
        }
        directory_ =
            tiny ? std::filesystem::path(value) / GetParam() : std::filesystem::path(value);
        const std::int64_t vocabulary = ModelSource::open(directory_).info().vocab_size;
        prompt_ = random_tokens(kPromptTokens, vocabulary, 5);
        answer_ = random_tokens(kGeneratedTokens, vocabulary, 6);
    }

    // The same tokens, statefully with an f32 cache and paged: the largest difference, of logits
    // that span `range`.
    struct Drift {
        double prompt = 0.0;
        double generated = 0.0;
        double range = 0.0;
    };

    Drift drift(const NumericSettings& paged_numeric) const {
        NumericSettings exact = paged_numeric;
        exact.kv_cache_precision = "f32";
        StatefulModel stateful(directory_, exact);
        ChainOptions options;
        options.numeric = paged_numeric;
        const std::uint32_t layers = ModelSource::open(directory_).info().num_layers;
        StageChain paged = StageChain::split(directory_, {layers / 2}, options);
        const std::vector<BlockId> table = blocks_from(1, 4);
        const LogitRows expected = stateful.run(prompt_);
        Drift found;
        found.prompt = max_difference(
            expected, paged.prefill(prompt_, table, {kPromptTokens}, expected.size()));
        const auto [low, high] =
            std::minmax_element(expected.back().begin(), expected.back().end());
        found.range = double{*high} - *low;
        for (std::uint32_t i = 0; i < kGeneratedTokens; ++i) {
            const LogitRows row = {paged.decode(answer_[i], kPromptTokens + i, table)};
            found.generated =
                std::max(found.generated, max_difference(stateful.run({answer_[i]}), row));
        }
        RecordProperty("drift", std::to_string(found.prompt) + " " +
                                    std::to_string(found.generated) + " of " +
                                    std::to_string(found.range));
        return found;
    }

    std::filesystem::path directory_;
    std::vector<std::int64_t> prompt_;
    std::vector<std::int64_t> answer_;
};

// openvinotoolkit/openvino.genai#4367: greedy text differs between the stateful and the paged path.
// With f32 all the way the two attentions differ by the order of their sums, on some processors
// not even by that.
TEST_P(Stateful, WithF32AllTheWayOnlyTheOrderOfSumsDiffers) {
    const Drift found = drift({.kv_cache_precision = "f32", .dynamic_quantization_group = 0});
    EXPECT_LT(found.prompt, 2e-5 * found.range);
    EXPECT_LT(found.generated, 2e-5 * found.range);
}

// Dynamic quantisation turns a last bit into one step of eight bits, here and there.
TEST_P(Stateful, WithDynamicQuantisationTheDriftIsBounded) {
    const Drift found = drift({.kv_cache_precision = "f32"});
    EXPECT_LT(found.prompt, 0.02 * found.range);
    EXPECT_LT(found.generated, 0.02 * found.range);
}

TEST_P(Stateful, AnEightBitCacheStaysNear) {
    const Drift found = drift({});
    EXPECT_LT(found.prompt, 0.1 * found.range);
    EXPECT_LT(found.generated, 0.1 * found.range);
}

INSTANTIATE_TEST_SUITE_P(Models, Stateful,
                         testing::Values("llama-int8", "llama-int4-asym", "qwen3", "gemma2",
                                         "mistral-window", "smollm2"),
                         [](const auto& tested) {
                             std::string name = tested.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace shardline::stage_test
