#include "model/gguf_header.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.hpp"
#include "unit/model/gguf_writer.hpp"

namespace shardline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ4K = 12;

GgufHeader parse(const std::string& bytes) {
    return GgufHeader::parse(std::as_bytes(std::span(bytes)));
}

GgufWriter sound() {
    GgufWriter writer;
    writer.text("general.architecture", "llama");
    writer.u32("llama.block_count", 4);
    writer.f32("llama.rope.freq_base", 10000.0F);
    writer.texts("tokenizer.ggml.tokens", {"a", "", "c"});
    writer.i32s("tokenizer.ggml.token_type", {1, 2, 3});
    writer.tensor("token_embd.weight", {4, 3}, kF32, std::string(48, 'x'));
    return writer;
}

// Expects a refusal with the code, whose message holds all of `parts`.
void expect_refused(const std::string& bytes, ErrorCode code,
                    const std::vector<std::string>& parts) {
    try {
        parse(bytes);
        ADD_FAILURE() << "was taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        for (const std::string& part : parts) {
            EXPECT_THAT(error.what(), HasSubstr(part));
        }
    }
}

void expect_corrupt(const GgufWriter& writer, const std::vector<std::string>& parts) {
    expect_refused(writer.bytes(), ErrorCode::kCorrupt, parts);
}

GgufWriter with_tensor(const std::string& name, const std::vector<std::uint64_t>& dimensions,
                       std::uint32_t type, std::uint64_t offset) {
    GgufWriter writer = sound();
    writer.tensor_at(name, dimensions, type, offset);
    return writer;
}

TEST(GgufHeader, ReadsWhatIsThere) {
    for (const std::uint32_t version : {2U, 3U}) {
        GgufWriter writer = sound();
        writer.version = version;
        const std::string bytes = writer.bytes();
        const GgufHeader header = parse(bytes);
        EXPECT_EQ(header.version(), version);
        EXPECT_EQ(header.alignment(), 32U);
        EXPECT_EQ(header.architecture(), "llama");
        EXPECT_EQ(header.number("llama.block_count"), 4U);
        EXPECT_EQ(header.real("llama.rope.freq_base"), 10000.0);
        EXPECT_EQ(header.text("llama.block_count"), std::nullopt);
        EXPECT_EQ(header.number("nothing"), std::nullopt);
        EXPECT_EQ(std::get<GgufArray>(header.metadata().at("tokenizer.ggml.tokens")).num_items, 3U);
        ASSERT_EQ(header.tensors().size(), 1U);
        const GgufTensor& tensor = header.tensors().front();
        EXPECT_THAT(tensor.dimensions, ElementsAre(4, 3));
        EXPECT_EQ(tensor.bytes, 48U);
        EXPECT_EQ(bytes.substr(tensor.offset, tensor.bytes), std::string(48, 'x'));
    }
}

TEST(GgufHeader, EveryCutIsRefused) {
    const std::string bytes = sound().bytes();
    // The padding behind the last tensor may be missing, its data may not.
    const std::size_t end_of_data = bytes.size() - 16;
    for (std::size_t size = 0; size < end_of_data; ++size) {
        EXPECT_THROW(parse(bytes.substr(0, size)), Error) << size;
    }
    EXPECT_NO_THROW(parse(bytes.substr(0, end_of_data)));
}

TEST(GgufHeader, OtherFilesAreRefused) {
    expect_refused("", ErrorCode::kCorrupt, {"not a GGUF file"});
    GgufWriter writer = sound();
    writer.magic = "GGML";
    expect_corrupt(writer, {"not a GGUF file"});
    writer = sound();
    for (const std::uint32_t version : {0U, 1U, 4U, 0xFFFFFFFFU}) {
        writer.version = version;
        expect_refused(writer.bytes(), ErrorCode::kUnsupported, {std::to_string(version)});
    }
    writer.version = 0x03000000;
    expect_refused(writer.bytes(), ErrorCode::kUnsupported, {"big-endian"});
}

TEST(GgufHeader, CountsBeyondTheFileAreRefused) {
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{1} << 40,
                                      std::numeric_limits<std::uint64_t>::max() - 9}) {
        GgufWriter writer = sound();
        writer.extra_tensors = count;
        EXPECT_THROW(parse(writer.bytes()), Error);
        writer = sound();
        writer.extra_pairs = count;
        EXPECT_THROW(parse(writer.bytes()), Error);
    }
}

TEST(GgufHeader, StringsAndArraysBeyondTheFileAreRefused) {
    constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;
    const auto with = [](std::uint32_t type, const std::string& value) {
        GgufWriter writer;
        writer.pair("evil.key", type, value);
        return writer;
    };
    const auto number = [](auto value) { return GgufWriter::number(value); };
    expect_corrupt(with(8, number(kHuge)), {"evil.key", "string"});
    expect_corrupt(with(8, number(~std::uint64_t{0})), {"evil.key"});
    expect_corrupt(with(9, number(std::uint32_t{4}) + number(kHuge)), {"evil.key", "array"});
    expect_corrupt(with(9, number(std::uint32_t{12}) + number(~std::uint64_t{0} / 8 + 2)),
                   {"evil.key", "array"});
    expect_corrupt(with(9, number(std::uint32_t{8}) + number(std::uint64_t{2}) +
                               GgufWriter::string("x") + number(kHuge)),
                   {"evil.key", "string"});
    expect_corrupt(with(9, number(std::uint32_t{77}) + number(std::uint64_t{1})),
                   {"evil.key", "item type 77"});
    expect_refused(
        with(9, number(std::uint32_t{9}) + number(std::uint64_t{1}) + std::string(64, '\0'))
            .bytes(),
        ErrorCode::kUnsupported, {"evil.key", "arrays of arrays"});
    expect_corrupt(with(13, number(std::uint64_t{0})), {"evil.key", "value type 13"});
    expect_corrupt(with(7, number(std::uint8_t{2})), {"evil.key", "truth"});
}

TEST(GgufHeader, KeysMustBeThereOnce) {
    GgufWriter writer = sound();
    writer.u32("llama.block_count", 5);
    expect_corrupt(writer, {"llama.block_count", "twice"});
    writer = sound();
    writer.u32("", 5);
    expect_corrupt(writer, {"empty key"});
    writer = sound();
    writer.u32(std::string(70000, 'k'), 5);
    expect_corrupt(writer, {"70000"});
    expect_corrupt(GgufWriter(), {"general.architecture"});
    writer = GgufWriter();
    writer.u32("general.architecture", 7);
    expect_corrupt(writer, {"general.architecture"});
}

TEST(GgufHeader, DimensionsAreChecked) {
    constexpr std::uint64_t kLarge = (std::uint64_t{1} << 42) + 1;
    expect_corrupt(with_tensor("evil", {1, 1, 1, 1, 1}, kF32, 0), {"'evil'", "5 dimensions"});
    expect_corrupt(with_tensor("evil", {}, kF32, 0), {"'evil'", "0 dimensions"});
    expect_corrupt(with_tensor("evil", {4, 0}, kF32, 0), {"'evil'", "dimension of 0"});
    expect_corrupt(with_tensor("evil", {0}, kF32, 0), {"'evil'", "dimension of 0"});
    expect_corrupt(with_tensor("evil", {kLarge}, kF32, 0), {"'evil'", "cut short"});
    expect_corrupt(with_tensor("evil", {kLarge, kLarge}, kF32, 0), {"'evil'", "overflow"});
    expect_corrupt(with_tensor("evil", {1, 1, 1, ~std::uint64_t{0}}, kF32, 0),
                   {"'evil'", "overflow"});
    expect_corrupt(with_tensor("evil", {std::uint64_t{1} << 32, std::uint64_t{1} << 32}, kF32, 0),
                   {"'evil'", "overflow"});
    expect_corrupt(with_tensor("evil", {100}, kQ4K, 0), {"'evil'", "whole blocks of 256"});
    // Each row must be whole, not only the tensor.
    expect_corrupt(with_tensor("evil", {128, 2}, kQ4K, 0), {"'evil'", "whole blocks of 256"});
}

TEST(GgufHeader, TypesNamesAndPlacesAreChecked) {
    expect_refused(with_tensor("evil", {4}, 77, 0).bytes(), ErrorCode::kUnsupported,
                   {"'evil'", "tensor type 77"});
    // Types that once existed.
    expect_refused(with_tensor("evil", {32}, 4, 0).bytes(), ErrorCode::kUnsupported, {"type 4"});
    expect_corrupt(with_tensor("token_embd.weight", {4}, kF32, 0), {"token_embd", "twice"});
    expect_corrupt(with_tensor("", {4}, kF32, 0), {"no name"});
    expect_corrupt(with_tensor(std::string(300, 'n'), {4}, kF32, 0), {"300"});
    expect_corrupt(with_tensor("evil", {4}, kF32, 16), {"'evil'", "alignment 32"});
    expect_corrupt(with_tensor("evil", {4}, kF32, 64), {"'evil'", "ends at byte"});
    expect_corrupt(with_tensor("evil", {4}, kF32, ~std::uint64_t{0} - 31), {"'evil'"});
    expect_corrupt(with_tensor("bad\x01\xff name", {4}, kF32, 16), {"'bad?? name'"});
}

TEST(GgufHeader, AlignmentIsChecked) {
    const auto aligned = [](std::uint32_t alignment) {
        GgufWriter writer;
        writer.alignment = 64;
        writer.text("general.architecture", "llama");
        writer.u32("general.alignment", alignment);
        writer.tensor("a", {4}, kF32, std::string(16, 'x'));
        writer.tensor("b", {4}, kF32, std::string(16, 'y'));
        return writer;
    };
    const std::string bytes = aligned(64).bytes();
    const GgufHeader header = parse(bytes);
    EXPECT_EQ(header.alignment(), 64U);
    EXPECT_EQ(bytes.substr(header.tensors()[1].offset, 16), std::string(16, 'y'));
    for (const std::uint32_t alignment : {0U, 3U, 48U, 1U << 17, 1U << 30}) {
        expect_corrupt(aligned(alignment), {"general.alignment"});
    }
    GgufWriter writer;
    writer.text("general.alignment", "32");
    expect_corrupt(writer, {"general.alignment"});
}

TEST(GgufHeader, NamesTensorTypes) {
    EXPECT_EQ(gguf_type_name(kQ4K), "Q4_K");
    EXPECT_EQ(gguf_type_name(999), "type 999");
}

}  // namespace
}  // namespace shardline
