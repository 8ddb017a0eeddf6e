// Real parts of real models: what load_stage and its executor take, refuse and cost.

#include "stage/stage_loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <semaphore>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "chain/stage_chain.hpp"
#include "model/model_source.hpp"
#include "stage/stage_worker.hpp"

namespace shardline {
namespace {

using stage_test::ChainOptions;
using stage_test::make_plan;
using stage_test::make_spec;
using stage_test::make_token_ids;
using stage_test::TokenSpan;
using testing::HasSubstr;

void no_progress(const char* /*phase*/, double /*fraction*/) {}

template <typename Action>
std::string error_of(ErrorCode code, Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        EXPECT_EQ(error_code_name(error.code()), error_code_name(code)) << error.what();
        return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
}

class StageLoader : public testing::Test {
protected:
    void SetUp() override {
        const char* tiny = std::getenv("SHARDLINE_TINY_MODELS");
        if (tiny == nullptr || !std::filesystem::exists(tiny)) {
            GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no directory";
        }
        directory_ = std::filesystem::path(tiny) / "llama-int8";
    }

    StageSpec spec(const PartRange& range) const { return make_spec(directory_, range); }

    std::unique_ptr<StageExecutor> load(const StageSpec& spec) const {
        return load_stage(directory_, spec, no_progress);
    }

    // A boundary tensor of `rows` rows for the part that starts at layer 1.
    static Activations hidden_rows(std::int64_t rows, float value) {
        Activations activations;
        const std::vector<float> values(static_cast<std::size_t>(rows * kHidden), value);
        activations.push_back({.name = "boundary.1.0",
                               .type = ElementType::kF32,
                               .shape = {rows, kHidden},
                               .bytes = std::string(reinterpret_cast<const char*>(values.data()),
                                                    values.size() * sizeof(float))});
        return activations;
    }

    static constexpr std::int64_t kHidden = 64;
    const PartRange whole_{{0, 4}, true, true};
    const PartRange middle_{{1, 3}, false, false};
    const std::vector<TokenSpan> two_tokens_ = {{{1, 2}, 0, stage_test::blocks_from(1, 1)}};
    std::filesystem::path directory_;
};

TEST_F(StageLoader, ReportsProgressToTheEnd) {
    std::vector<std::string> phases;
    double last = 0.0;
    load_stage(directory_, spec(middle_), [&](const char* phase, double fraction) {
        phases.emplace_back(phase);
        EXPECT_GE(fraction, last);
        last = fraction;
    });
    EXPECT_THAT(phases, testing::ElementsAre("open", "cut", "compile", "warm up", "ready"));
    EXPECT_EQ(last, 1.0);
}

TEST_F(StageLoader, RefusesAnotherModel) {
    StageSpec other = spec(middle_);
    other.fingerprint.xml_sha256[0] = other.fingerprint.xml_sha256[0] == '0' ? '1' : '0';
    EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { load(other); }),
                HasSubstr("is another model than the fleet serves"));
}

TEST_F(StageLoader, RefusesWhatDoesNotFit) {
    StageSpec huge = spec(middle_);
    huge.num_blocks = std::numeric_limits<std::uint32_t>::max();
    EXPECT_THAT(error_of(ErrorCode::kResourceExhausted, [&] { load(huge); }),
                testing::AllOf(HasSubstr("part 1-3"), HasSubstr("MiB are free on")));
    StageSpec no_pool = spec(middle_);
    no_pool.num_blocks = 1;
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { load(no_pool); }),
                HasSubstr("two blocks or more"));
}

TEST_F(StageLoader, RefusesUnknownSettingsAndDevices) {
    StageSpec precision = spec(middle_);
    precision.numeric.kv_cache_precision = "u3";
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { load(precision); }), HasSubstr("'u3'"));
    StageSpec device = spec(middle_);
    device.device = "ABACUS";
    EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { load(device); }),
                testing::AllOf(HasSubstr("'ABACUS'"), HasSubstr("CPU")));
}

TEST_F(StageLoader, RefusesLayersThatAreNotThere) {
    EXPECT_THROW(load(spec({{2, 9}, false, false})), Error);
    EXPECT_THROW(load(spec({{3, 3}, false, false})), Error);
    EXPECT_THROW(load(spec({{3, 2}, false, false})), Error);
}

TEST_F(StageLoader, TellsWhatItRunsWith) {
    ChainOptions options;
    options.num_threads = 1;
    const auto one = load(make_spec(directory_, middle_, options));
    const EffectiveSettings settings = one->effective_settings();
    EXPECT_EQ(settings.device, "CPU");
    EXPECT_EQ(settings.inference_precision, "f32");
    EXPECT_EQ(settings.kv_cache_precision, "u8");
    EXPECT_EQ(settings.dynamic_quantization_group, NumericSettings{}.dynamic_quantization_group);
    EXPECT_EQ(settings.num_threads, 1U);
    EXPECT_FALSE(settings.runtime.empty());

    options.num_threads = 2;
    EXPECT_EQ(
        difference(settings, load(make_spec(directory_, middle_, options))->effective_settings()),
        "");
    options.numeric.kv_cache_precision = "f16";
    EXPECT_THAT(
        difference(settings, load(make_spec(directory_, middle_, options))->effective_settings()),
        HasSubstr("KV cache precision is u8 on one stage and f16 on another"));
    options.numeric = {.dynamic_quantization_group = 0};
    EXPECT_THAT(
        difference(settings, load(make_spec(directory_, middle_, options))->effective_settings()),
        HasSubstr("dynamic quantisation group is 32 on one stage and 0 on another"));
}

TEST_F(StageLoader, ActivationsAreCheckedBeforeUse) {
    const auto stage = load(spec(middle_));
    const StepPlan plan = make_plan(two_tokens_, {1});
    const auto fault = [&](Activations activations) {
        return error_of(ErrorCode::kCorrupt, [&] { stage->run(plan, std::move(activations)); });
    };
    EXPECT_THAT(fault({}), HasSubstr("lacks 'boundary.1.0'"));
    EXPECT_THAT(fault(hidden_rows(3, 1.0F)), HasSubstr("takes 2 rows of 64 f32"));
    Activations renamed = hidden_rows(2, 1.0F);
    renamed[0].name = "boundary.2.0";
    EXPECT_THAT(fault(renamed), HasSubstr("lacks 'boundary.1.0'"));
    Activations extra = hidden_rows(2, 1.0F);
    extra.push_back(renamed[0]);
    EXPECT_THAT(fault(extra), HasSubstr("brings boundary.1.0, boundary.2.0"));
    Activations retyped = hidden_rows(2, 1.0F);
    retyped[0].type = ElementType::kI32;
    EXPECT_THAT(fault(retyped), HasSubstr("is i32 [2,64]"));
    Activations cut_short = hidden_rows(2, 1.0F);
    cut_short[0].bytes.pop_back();
    EXPECT_THAT(fault(cut_short), HasSubstr("511 bytes"));
    Activations negative = hidden_rows(2, 1.0F);
    negative[0].shape = {2, -64};
    fault(negative);
    Activations twice = hidden_rows(2, 1.0F);
    twice.push_back(twice[0]);
    EXPECT_THAT(fault(twice), HasSubstr("which takes 1 of them"));

    // It still runs what fits.
    const Activations out = stage->run(plan, hidden_rows(2, 1.0F));
    EXPECT_EQ(out.at(0).name, "boundary.3.0");
    EXPECT_EQ(out.at(0).shape, (std::vector<std::int64_t>{2, kHidden}));
}

TEST_F(StageLoader, TokenIdsBeyondTheVocabularyAreRefused) {
    const auto stage = load(spec({{0, 1}, true, false}));
    const std::int64_t vocabulary = ModelSource::open(directory_).info().vocab_size;
    for (const std::int64_t id : {std::int64_t{-1}, vocabulary, std::int64_t{1} << 40}) {
        const std::vector<TokenSpan> spans = {{{1, id}, 0, stage_test::blocks_from(1, 1)}};
        EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                             [&] { stage->run(make_plan(spans, {1}), make_token_ids(spans)); }),
                    HasSubstr("outside the vocabulary of " + std::to_string(vocabulary)));
    }
}

TEST_F(StageLoader, KeptRowsLeaveTheLastStageOnly) {
    StageSpec last = spec(middle_);
    last.keeps_rows = true;
    const StepPlan plan = make_plan({{{1, 2, 3}, 0, stage_test::blocks_from(1, 1)}}, {0, 2});
    const Activations all = load(spec(middle_))->run(plan, hidden_rows(3, 0.5F));
    const Activations kept = load(last)->run(plan, hidden_rows(3, 0.5F));
    ASSERT_EQ(all.at(0).shape, (std::vector<std::int64_t>{3, kHidden}));
    ASSERT_EQ(kept.at(0).shape, (std::vector<std::int64_t>{2, kHidden}));
    const std::size_t row_bytes = kHidden * sizeof(float);
    EXPECT_EQ(kept[0].bytes.substr(0, row_bytes), all[0].bytes.substr(0, row_bytes));
    EXPECT_EQ(kept[0].bytes.substr(row_bytes), all[0].bytes.substr(2 * row_bytes));
}

// openvinotoolkit/openvino.genai#2984: a device that computes NaN answers with one token for ever.
TEST_F(StageLoader, ANanIsAnErrorThatNamesStageAndRow) {
    Activations poisoned = hidden_rows(2, 0.5F);
    const float fault = std::nanf("");
    std::memcpy(poisoned[0].bytes.data() + (kHidden + 7) * sizeof(float), &fault, sizeof(fault));
    const StepPlan plan = make_plan(
        {{{1}, 0, stage_test::blocks_from(1, 1)}, {{2}, 0, stage_test::blocks_from(2, 1)}}, {1});
    EXPECT_THAT(error_of(ErrorCode::kInternal, [&] { load(spec(middle_))->run(plan, poisoned); }),
                testing::AllOf(HasSubstr("part 1-3 computed a NaN"), HasSubstr("row 1")));

    StepResult ended;
    std::binary_semaphore done{0};
    StageWorker worker(
        1, "1-3", load(spec(middle_)), Epoch{0}, [&](Step /*step*/) { done.release(); },
        [&](StepResult result) {
            ended = std::move(result);
            done.release();
        });
    ASSERT_TRUE(worker.push({.plan = plan, .activations = poisoned, .timings = {}}));
    done.acquire();
    EXPECT_EQ(ended.status, StepStatus::kFailed);
    EXPECT_THAT(ended.error, HasSubstr("stage 1 (1-3): part 1-3 computed a NaN"));
}

// What a failed step left in its blocks must not reach whoever gets them next.
TEST_F(StageLoader, ANanDoesNotStayInTheBlocks) {
    const auto stage = load(spec(middle_));
    const auto clean = load(spec(middle_));
    const std::vector<BlockId> table = stage_test::blocks_from(1, 1);
    Activations poisoned = hidden_rows(8, 0.5F);
    const float fault = std::nanf("");
    std::memcpy(poisoned[0].bytes.data() + 6 * kHidden * sizeof(float), &fault, sizeof(fault));
    const StepPlan eight = make_plan({{std::vector<std::int64_t>(8, 1), 0, table}}, {7});
    EXPECT_THROW(stage->run(eight, std::move(poisoned)), Error);
    const StepPlan two = make_plan({{{1, 2}, 0, table}}, {1});
    const StepPlan one = make_plan({{{3}, 2, table}}, {0});
    for (const StepPlan& plan : {two, one}) {
        const Activations expected = clean->run(plan, hidden_rows(num_rows(plan), 0.25F));
        const Activations got = stage->run(plan, hidden_rows(num_rows(plan), 0.25F));
        EXPECT_EQ(got.at(0).bytes, expected.at(0).bytes);
    }
}

// The pool a footprint predicts is the pool that is there, for every KV precision.
TEST_F(StageLoader, BlocksThatFitLeaveRoomForTheRest) {
    const StageFootprint footprint = stage_footprint(directory_, spec(middle_));
    // Two layers, 2 KV heads of 16 features with 8 bytes of scale, 32 tokens, keys and values.
    EXPECT_GT(footprint.weights_bytes, 0U);
    EXPECT_GT(footprint.kv_bytes_per_block, 0U);
    const std::uint64_t fixed =
        footprint.weights_bytes + footprint.activation_bytes + footprint.reserve_bytes;
    EXPECT_EQ(blocks_that_fit(footprint, fixed + 10 * footprint.kv_bytes_per_block), 10U);
    EXPECT_THAT(error_of(ErrorCode::kResourceExhausted,
                         [&] { blocks_that_fit(footprint, fixed + footprint.kv_bytes_per_block); }),
                HasSubstr("two KV blocks"));
    EXPECT_THAT(error_of(ErrorCode::kResourceExhausted, [&] { blocks_that_fit(footprint, 0); }),
                HasSubstr("0 MiB of memory do not hold"));
}

// openvinotoolkit/openvino.genai#1636: memory at load is a multiple of the model, then falls.
TEST(StageMemory, LoadStaysWithinTheFootprint) {
    const char* smollm2 = std::getenv("SHARDLINE_SMOLLM2");
    if (smollm2 == nullptr || !std::filesystem::exists(smollm2)) {
        GTEST_SKIP() << "SHARDLINE_SMOLLM2 names no directory";
    }
    const StageSpec spec = make_spec(smollm2, {{0, 15}, false, false});
    const StageFootprint footprint = stage_footprint(smollm2, spec);
    const std::uint64_t before = process_memory(own_pid()).anonymous_bytes;
    std::uint64_t most = 0;
    const auto watch = [&](const char* /*phase*/, double /*fraction*/) {
        most = std::max(most, process_memory(own_pid()).anonymous_bytes);
    };
    const auto stage = load_stage(smollm2, spec, watch);
    const std::uint64_t after = process_memory(own_pid()).anonymous_bytes;
    const std::uint64_t predicted = footprint.weights_bytes + footprint.activation_bytes +
                                    footprint.reserve_bytes +
                                    spec.num_blocks * footprint.kv_bytes_per_block;
    EXPECT_LT(after - before, predicted);
    EXPECT_LT(most - before, predicted);
    EXPECT_GT(after - before, footprint.weights_bytes / 2) << "the footprint is no estimate";
    RecordProperty("anonymous_mib", std::to_string((after - before) >> 20));
}

}  // namespace
}  // namespace shardline
