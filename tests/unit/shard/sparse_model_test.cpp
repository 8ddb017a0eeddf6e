// A part opened from a store that holds only what it needs computes what it computes from the
// whole model, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <openvino/openvino.hpp>

#include "cut/cut.hpp"
#include "model/model_source.hpp"
#include "shard/byte_ranges.hpp"
#include "shard/range_algebra.hpp"
#include "shard/shard_store.hpp"
#include "unit/model/test_models.hpp"
#include "unit/shard/print_range.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

constexpr std::size_t kTokens = 7;

void fetch(const PieceSource& source, ShardStore& store, const std::vector<ByteRange>& ranges) {
    for (const ByteRange& range : store.missing(ranges)) {
        const Piece piece = source.read(range);
        store.put_piece(piece.offset, piece.bytes, piece.sha256);
    }
}

// As a worker comes to its part: graph and basics first, then what the cut graph names.
void fill(const PieceSource& source, ShardStore& store, const PartRange& range) {
    store.put_xml(source.xml());
    const WeightMap map =
        WeightMap::parse(source.xml(), "model.xml", source.fingerprint().bin_bytes);
    fetch(source, store, basic_ranges(map, source.fingerprint().bin_bytes));
    const ModelSource opened = ModelSource::open(store.directory());
    ASSERT_EQ(opened.fingerprint(), source.fingerprint());
    fetch(source, store, needed_ranges(opened, cut_part(opened.read_graph(), range)));
    store.flush();
}

ov::Tensor input_tensor(const ov::Output<const ov::Node>& port) {
    const std::string name = port.get_any_name();
    if (name == "beam_idx") {
        ov::Tensor beams(ov::element::i32, {1});
        beams.data<std::int32_t>()[0] = 0;
        return beams;
    }
    if (port.get_element_type() == ov::element::i64) {
        ov::Tensor ids(ov::element::i64, {1, kTokens});
        for (std::size_t i = 0; i < kTokens; ++i) {
            const bool mask = name == "attention_mask";
            ids.data<std::int64_t>()[i] = mask ? 1 : static_cast<std::int64_t>(i);
        }
        return ids;
    }
    // Hidden rows: the first dynamic dimension is the batch unless it is fixed to 1.
    const ov::PartialShape& partial = port.get_partial_shape();
    ov::Shape shape;
    std::size_t num_dynamic = 0;
    for (const ov::Dimension& dimension : partial) {
        num_dynamic += dimension.is_dynamic() ? 1 : 0;
    }
    for (const ov::Dimension& dimension : partial) {
        const bool is_static = dimension.is_static();
        shape.push_back(is_static            ? static_cast<std::size_t>(dimension.get_length())
                        : num_dynamic-- == 1 ? kTokens
                                             : 1);
    }
    ov::Tensor hidden(port.get_element_type(), shape);
    for (std::size_t i = 0; i < hidden.get_size(); ++i) {
        hidden.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    }
    return hidden;
}

std::vector<float> run(const std::shared_ptr<ov::Model>& part) {
    ov::Core core;
    auto compiled =
        core.compile_model(part, "CPU", ov::hint::inference_precision(ov::element::f32));
    auto infer = compiled.create_infer_request();
    for (const auto& port : compiled.inputs()) {
        infer.set_tensor(port, input_tensor(port));
    }
    infer.infer();
    const ov::Tensor output = infer.get_output_tensor(0);
    const auto* values = output.data<const float>();
    return {values, values + output.get_size()};
}

void expect_same_from_store(const fs::path& model, const PartRange& range, const fs::path& root) {
    const std::vector<float> expected = run(cut_part(ModelSource::open(model).read_graph(), range));
    const PieceSource source(model);
    fs::path directory;
    {
        ShardStore store(root, source.fingerprint());
        fill(source, store, range);
        EXPECT_THAT(store.verify(), IsEmpty());
        directory = store.directory();
    }
    const std::vector<float> actual =
        run(cut_part(ModelSource::open(directory).read_graph(), range));
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_TRUE(std::any_of(expected.begin(), expected.end(), [](float v) { return v != 0.0F; }));
    EXPECT_EQ(0, std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)))
        << model << ' ' << to_string(range);
}

TEST(SparseModel, TinyModels) {
    const fs::path tiny = path_from_environment("SHARDLINE_TINY_MODELS");
    if (tiny.empty()) {
        GTEST_SKIP() << "SHARDLINE_TINY_MODELS is not set";
    }
    const ScratchDirectory scratch;
    for (const char* name :
         {"llama", "llama-tied-rope3", "llama-int4-asym", "gpt2", "qwen3_moe", "gemma3", "phi3"}) {
        for (const PartRange& range :
             {PartRange{{0, 2}, true, false}, PartRange{{2, 4}, false, false},
              PartRange{{3, 4}, false, false}}) {
            fs::remove_all(scratch.path() / "store");
            expect_same_from_store(tiny / name, range, scratch.path() / "store");
        }
    }
}

TEST(SparseModel, SmolLm2) {
    const fs::path model = path_from_environment("SHARDLINE_SMOLLM2");
    if (model.empty()) {
        GTEST_SKIP() << "SHARDLINE_SMOLLM2 is not set";
    }
    const ScratchDirectory scratch;
    const PartRange middle{{10, 20}, false, false};
    expect_same_from_store(model, middle, scratch.path());

    // A third of the layers, no embedding: far less than the whole lies on disk.
    const ModelSource source = ModelSource::open(model);
    ShardStore store(scratch.path(), source.fingerprint());
    const std::uint64_t held = File::open_read(store.directory() / kModelBinName).allocated_bytes();
    EXPECT_LT(held, source.info().weights_bytes * 30 / 100);

    // Another placement adds only its own layers.
    const std::vector<ByteRange> next =
        needed_ranges(source, cut_part(source.read_graph(), {{15, 25}, false, false}));
    const std::uint64_t missing = total_bytes(store.missing(next));
    EXPECT_GT(missing, 0U);
    EXPECT_LT(missing, total_bytes(next) * 60 / 100);

    // The end with the head, whose weights are the embedding's.
    expect_same_from_store(model, {{28, 30}, false, true}, scratch.path() / "head");
}

}  // namespace
}  // namespace shardline
