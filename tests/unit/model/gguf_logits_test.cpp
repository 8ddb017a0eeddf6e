// What the import makes of a GGUF answers as the file's own definition says, or is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>

#include "base/error.hpp"
#include "model/gguf_import.hpp"
#include "model/model_source.hpp"
#include "unit/model/test_models.hpp"
#include "unit/model/tiny_gguf.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int64_t> some_ids(std::size_t count) {
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; i < count; ++i) {
        ids.push_back(static_cast<std::int64_t>(i * 37 % TinyGguf::kVocab));
    }
    return ids;
}

// Logits of the last token, by the plain stateful graph in f32.
std::vector<float> run(const std::shared_ptr<ov::Model>& graph,
                       const std::vector<std::int64_t>& ids) {
    ov::Core core;
    auto compiled =
        core.compile_model(graph, "CPU", ov::hint::inference_precision(ov::element::f32),
                           ov::hint::kv_cache_precision(ov::element::f32),
                           ov::hint::dynamic_quantization_group_size(0));
    auto infer = compiled.create_infer_request();
    const ov::Shape shape = {1, ids.size()};
    ov::Tensor input(ov::element::i64, shape);
    ov::Tensor mask(ov::element::i64, shape);
    ov::Tensor positions(ov::element::i64, shape);
    std::copy(ids.begin(), ids.end(), input.data<std::int64_t>());
    std::fill_n(mask.data<std::int64_t>(), ids.size(), 1);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        positions.data<std::int64_t>()[i] = static_cast<std::int64_t>(i);
    }
    ov::Tensor beams(ov::element::i32, {1});
    beams.data<std::int32_t>()[0] = 0;
    infer.set_tensor("input_ids", input);
    infer.set_tensor("attention_mask", mask);
    infer.set_tensor("position_ids", positions);
    infer.set_tensor("beam_idx", beams);
    infer.infer();
    const ov::Tensor logits = infer.get_tensor("logits");
    const auto* end = logits.data<const float>() + logits.get_size();
    return {end - TinyGguf::kVocab, end};
}

class GgufLogitsTest : public testing::Test {
protected:
    fs::path write(const std::string& bytes) {
        const fs::path file = scratch_.path() / "tiny.gguf";
        std::ofstream(file, std::ios::binary) << bytes;
        return file;
    }

    ModelSource import(const std::string& bytes) {
        const fs::path directory = scratch_.path() / "tiny";
        fs::remove_all(directory);
        import_gguf(write(bytes), directory, {}, {});
        return ModelSource::open(directory);
    }

    void expect_reference(TinyGguf& tiny, std::size_t num_ids = 40) {
        const std::vector<std::int64_t> ids = some_ids(num_ids);
        const ModelSource source = import(tiny.build().bytes());
        const std::vector<float> logits = run(source.read_graph(), ids);
        const std::vector<double> expected = tiny.reference(ids);
        double worst = 0.0;
        double largest = 0.0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            worst = std::max(worst, std::abs(expected[i] - double{logits[i]}));
            largest = std::max(largest, std::abs(expected[i]));
        }
        EXPECT_GT(largest, 1e-3);
        EXPECT_LT(worst, 2e-4 * largest) << tiny.architecture << " type " << tiny.weight_type;
    }

    void expect_refused(const GgufWriter& writer, ErrorCode code, const std::string& part) {
        try {
            import(writer.bytes());
            ADD_FAILURE() << "was imported; expected: " << part;
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), code) << error.what();
            EXPECT_THAT(error.what(), HasSubstr(part));
        }
        EXPECT_EQ(std::distance(fs::directory_iterator(scratch_.path()), {}), 1);
    }

    ScratchDirectory scratch_;
};

TEST_F(GgufLogitsTest, EveryTensorTypeOfTheWriter) {
    for (const std::uint32_t type : {0U, 1U, 2U, 8U, 12U, 14U}) {
        TinyGguf tiny;
        tiny.weight_type = type;
        expect_reference(tiny);
    }
}

// Query and key rows are stored in the order that the architecture's rotation wants.
TEST_F(GgufLogitsTest, RotationsByArchitecture) {
    TinyGguf tiny;
    for (const char* architecture : {"llama", "mistral3"}) {
        tiny.architecture = architecture;
        expect_reference(tiny);
    }
    tiny.architecture = "qwen2";
    tiny.with_bias = true;
    tiny.rotation = TinyGguf::Rotation::kHalves;
    expect_reference(tiny);
}

TEST_F(GgufLogitsTest, TiedEmbedding) {
    TinyGguf tiny;
    tiny.tied = true;
    tiny.weight_type = 2;
    expect_reference(tiny);
    constexpr std::uint64_t kTableBytes = std::uint64_t{256} * 256 / 2;  // at 4 bits
    const std::uint64_t tied_bytes =
        ModelSource::open(scratch_.path() / "tiny").info().weights_bytes;
    tiny.tied = false;
    const std::uint64_t untied_bytes = import(tiny.build().bytes()).info().weights_bytes;
    EXPECT_GE(untied_bytes, tied_bytes + kTableBytes);
}

TEST_F(GgufLogitsTest, RopeFactorsAreApplied) {
    TinyGguf tiny;
    for (std::uint32_t i = 0; i < TinyGguf::kHeadSize / 2; ++i) {
        tiny.rope_factors.push_back(i < 8 ? 1.0F : 1.0F + static_cast<float>(i) / 4);
    }
    expect_reference(tiny, 8);
    expect_reference(tiny, 300);
}

TEST_F(GgufLogitsTest, RopeFactorsThatDoNotFitAreRefused) {
    TinyGguf tiny;
    tiny.rope_factors.assign(5, 2.0F);
    expect_refused(tiny.build(), ErrorCode::kUnsupported, "rope_freqs.weight");
    tiny.rope_factors.assign(TinyGguf::kHeadSize / 2, 0.0F);
    expect_refused(tiny.build(), ErrorCode::kUnsupported, "rope_freqs.weight");
    tiny.rope_factors.clear();
    GgufWriter writer = tiny.build();
    writer.tensor("rope_factors_long.weight", {4}, 0, std::string(16, '\0'));
    expect_refused(writer, ErrorCode::kUnsupported, "rope_factors_long.weight");
    writer = tiny.build();
    writer.text("llama.rope.scaling.type", "longrope");
    expect_refused(writer, ErrorCode::kUnsupported, "longrope");
}

TEST_F(GgufLogitsTest, DescribesTheModel) {
    const ModelInfo info = import(TinyGguf().build().bytes()).info();
    EXPECT_EQ(info.name, "tiny");
    EXPECT_EQ(info.architecture, "llama");
    EXPECT_EQ(info.num_layers, TinyGguf::kLayers);
    EXPECT_EQ(info.hidden_size, TinyGguf::kWidth);
    EXPECT_EQ(info.vocab_size, TinyGguf::kVocab);
    EXPECT_EQ(info.context_length, 512U);
    // By id, and by the text of a control token; an ordinary token of that text is none.
    EXPECT_THAT(info.eos_token_ids, ElementsAre(2, 7));
}

TEST_F(GgufLogitsTest, UnknownArchitecturesAndTypesAreRefusedByName) {
    TinyGguf tiny;
    tiny.architecture = "rwkv6";
    expect_refused(tiny.build(), ErrorCode::kUnsupported, "'rwkv6'");
    tiny.architecture = "llama";
    GgufWriter writer = tiny.build();
    writer.tensor("blk.0.extra.weight", {32}, 20, std::string(18, '\0'));
    expect_refused(writer, ErrorCode::kUnsupported, "'blk.0.extra.weight' has the type IQ4_NL");
    writer = tiny.build();
    writer.pair("split.count", 2, GgufWriter::number(std::uint16_t{3}));
    expect_refused(writer, ErrorCode::kUnsupported, "one of 3 parts");
}

TEST_F(GgufLogitsTest, SizesThatContradictAreRefused) {
    // Written first, so that these stand: a second pair of the same key is refused by itself.
    const auto sized = [](std::uint32_t layers, std::uint32_t width, std::uint32_t heads,
                          std::uint32_t kv_heads, std::uint32_t rope) {
        GgufWriter writer;
        writer.text("general.architecture", "llama");
        writer.u32("llama.block_count", layers);
        writer.u32("llama.embedding_length", width);
        writer.u32("llama.attention.head_count", heads);
        writer.u32("llama.attention.head_count_kv", kv_heads);
        writer.u32("llama.rope.dimension_count", rope);
        writer.tensor("token_embd.weight", {32, 4}, 0, std::string(512, '\0'));
        writer.tensor("blk.0.attn_q.weight", {32, 4}, 0, std::string(512, '\0'));
        return writer;
    };
    expect_refused(sized(0, 32, 4, 2, 8), ErrorCode::kCorrupt, "block_count");
    expect_refused(sized(1U << 31, 32, 4, 2, 8), ErrorCode::kCorrupt, "block_count");
    expect_refused(sized(1, 0, 4, 2, 8), ErrorCode::kCorrupt, "embedding_length");
    expect_refused(sized(1, 64, 4, 2, 8), ErrorCode::kCorrupt, "token_embd.weight");
    expect_refused(sized(1, 32, 0, 2, 8), ErrorCode::kCorrupt, "head_count");
    expect_refused(sized(1, 32, 4, 0, 8), ErrorCode::kCorrupt, "head_count_kv");
    expect_refused(sized(1, 32, 4, 3, 8), ErrorCode::kCorrupt, "4 attention heads");
    expect_refused(sized(1, 32, 4, 2, 16), ErrorCode::kCorrupt, "rotary");
    expect_refused(sized(1, 32, 4, 2, 7), ErrorCode::kCorrupt, "rotary");
    // Sound so far, but there are no layers behind it: the front end's own reason.
    expect_refused(sized(1, 32, 4, 2, 8), ErrorCode::kUnsupported, "tiny.gguf: OpenVINO: ");
    GgufWriter writer = sized(1, 32, 4, 2, 8);
    writer.tensor("blk.1.attn_q.weight", {32}, 0, std::string(128, '\0'));
    expect_refused(writer, ErrorCode::kCorrupt, "beyond the 1 layers");
    writer = sized(1, 32, 4, 2, 8);
    writer.f32("llama.rope.scaling.factor", 0.0F);
    expect_refused(writer, ErrorCode::kCorrupt, "scaling.factor");
    writer = sized(1, 32, 4, 2, 8);
    writer.text("llama.attention.key_length", "many");
    expect_refused(writer, ErrorCode::kUnsupported, "key_length");
}

// A cut download: every length is refused before OpenVINO sees it.
TEST_F(GgufLogitsTest, CutFilesAreRefused) {
    const std::string bytes = TinyGguf().build().bytes();
    for (const double part : {0.0, 0.001, 0.01, 0.5, 0.99}) {
        const fs::path file = write(
            bytes.substr(0, static_cast<std::size_t>(part * static_cast<double>(bytes.size()))));
        EXPECT_THROW(import_gguf(file, scratch_.path() / "tiny", {}, {}), Error) << part;
        EXPECT_FALSE(fs::exists(scratch_.path() / "tiny"));
    }
    EXPECT_THROW(import_gguf(scratch_.path() / "none.gguf", scratch_.path() / "tiny", {}, {}),
                 Error);
    EXPECT_THROW(import_gguf(scratch_.path(), scratch_.path() / "tiny", {}, {}), Error);
}

}  // namespace
}  // namespace shardline
