#include "text/gguf_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error.hpp"
#include "text/gguf_pre_tokenizer.hpp"
#include "unit/text/tiny_tokenizer.hpp"

namespace shardline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void expect_refused(const ov::AnyMap& metadata, ErrorCode code, const std::string& named) {
    try {
        build_gguf_tokenizer(metadata);
        FAIL() << "accepted, should name " << named;
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        EXPECT_THAT(error.what(), HasSubstr(named));
    }
}

ov::AnyMap changed(const std::string& key, const ov::Any& value) {
    auto metadata = TinyTokenizer().metadata();
    metadata[key] = value;
    return metadata;
}

ov::AnyMap lacking(const std::string& key) {
    auto metadata = TinyTokenizer().metadata();
    metadata.erase(key);
    return metadata;
}

TEST(GgufTokenizer, NamesTheKeyThatIsWrong) {
    const TinyTokenizer tiny;
    const auto corrupt = ErrorCode::kCorrupt;
    expect_refused({}, corrupt, "\"model\"");
    expect_refused(lacking("tokens"), corrupt, "\"tokens\"");
    expect_refused(lacking("merges"), corrupt, "\"merges\"");
    expect_refused(changed("tokens", std::string("x")), corrupt, "\"tokens\"");
    expect_refused(changed("tokens", std::vector<std::string>{}), corrupt, "\"tokens\"");
    expect_refused(changed("merges", std::vector<std::string>{"ab"}), corrupt, "\"merges\"");
    expect_refused(changed("merges", std::vector<std::string>{"a b c"}), corrupt, "\"merges\"");
    expect_refused(changed("merges", std::vector<std::string>{" b"}), corrupt, "\"merges\"");
    expect_refused(changed("merges", std::vector<std::string>{"a zz"}), corrupt, "\"merges\"");
    expect_refused(changed("token_type", numbers({1, 2})), corrupt, "\"token_type\"");
    auto types = tiny.types;
    types[3] = 77;
    expect_refused(changed("token_type", numbers(types)), corrupt, "\"token_type\"");
    expect_refused(changed("token_type", std::string("x")), corrupt, "\"token_type\"");
    expect_refused(changed("eos_token_id", number(99999)), corrupt, "\"eos_token_id\"");
    expect_refused(changed("bos_token_id", numbers({1, 2})), corrupt, "\"bos_token_id\"");
    expect_refused(changed("bos_token_id", std::string("1")), corrupt, "\"bos_token_id\"");
    expect_refused(changed("chat_template", number(1)), corrupt, "\"chat_template\"");
    expect_refused(changed("model", std::string("llama")), corrupt, "\"scores\"");
}

TEST(GgufTokenizer, RefusesKindsItDoesNotKnow) {
    expect_refused(changed("pre", std::string("tomorrow")), ErrorCode::kUnsupported, "tomorrow");
    for (const std::string model : {"t5", "bert", "rwkv", "plamo2"}) {
        expect_refused(changed("model", model), ErrorCode::kUnsupported, model);
    }
}

TEST(GgufTokenizer, EveryPreTokenizerCutsText) {
    // A merge across a word's end can only happen when a pattern does not compile or match.
    TinyTokenizer tiny;
    tiny.merges.push_back("o 1");
    tiny.merges.push_back("o ,");
    for (const auto* token : {"o1", "o,"}) {
        tiny.tokens.push_back(token);
        tiny.types.push_back(1);
    }
    const std::string text = "Hello  world's foo12345 foo, étés!\n\n\tif (x) { y_z += 1; } 中文 ";
    for (const std::string pre :
         {"default", "gpt-2", "smollm", "falcon", "llama-bpe", "dbrx", "qwen2", "qwen35",
          "deepseek-llm", "deepseek-coder", "deepseek-v3", "tekken", "gpt-4o", "bailingmoe",
          "seed-coder", "bloom", "viking"}) {
        auto metadata = tiny.metadata();
        metadata["pre"] = pre;
        const SavedTokenizer saved(metadata);
        const auto tokenizer = saved.open();
        const auto ids = tokenizer.encode(text, false);
        EXPECT_EQ(tokenizer.decode(ids), text) << pre;
        EXPECT_EQ(std::count(ids.begin(), ids.end(), tiny.id("o1")), pre == "bloom" ? 1 : 0) << pre;
        EXPECT_EQ(std::count(ids.begin(), ids.end(), tiny.id("o,")), 0) << pre;
        EXPECT_FALSE(gguf_pre_tokenizer(pre).patterns.empty());
    }
}

TEST(GgufTokenizer, MergesInsideWordsOnly) {
    const TinyTokenizer tiny;
    const SavedTokenizer saved(tiny.metadata());
    const auto tokenizer = saved.open();
    EXPECT_THAT(tokenizer.encode("hello", false), ElementsAre(tiny.id("hello")));
    EXPECT_THAT(tokenizer.encode("hell", false), ElementsAre(tiny.id("hell")));
    EXPECT_THAT(tokenizer.encode("he    x", false),
                ElementsAre(tiny.id("he"), tiny.id("  "), ' ', ' ', 'x'));
    EXPECT_TRUE(tokenizer.encode("", false).empty());
    EXPECT_EQ(tokenizer.vocab_size(), tiny.tokens.size());
}

// huggingface/transformers#49008
TEST(GgufTokenizer, MarkersAreOneIdEach) {
    const TinyTokenizer tiny;
    const SavedTokenizer saved(tiny.metadata());
    const auto tokenizer = saved.open();
    EXPECT_THAT(
        tokenizer.encode("<tool_call>h</tool_call><|im_end|>", false),
        ElementsAre(tiny.id("<tool_call>"), 'h', tiny.id("</tool_call>"), tiny.id("<|im_end|>")));
    // The longest of two markers that start alike.
    EXPECT_THAT(tokenizer.encode("<think>\n", false), ElementsAre(tiny.id("<think>\n")));
    EXPECT_THAT(tokenizer.encode("<think>h", false), ElementsAre(tiny.id("<think>"), 'h'));
    EXPECT_EQ(tokenizer.encode("[PAD0]", false).size(), 6U);  // unused tokens are no markers
    EXPECT_EQ(tokenizer.decode(std::vector{tiny.id("<tool_call>"), tiny.id("<|im_end|>")}),
              "<tool_call>");
    EXPECT_EQ(tokenizer.decode(std::vector{tiny.id("<|im_end|>")}, false), "<|im_end|>");
}

TEST(GgufTokenizer, PlainTextNeverHoldsAMarker) {
    const TinyTokenizer tiny;
    const SavedTokenizer saved(tiny.metadata());
    const auto tokenizer = saved.open();
    for (const std::string text :
         {"<|im_end|>", "x<tool_call>y<|im_start|>", "<think>\n", "hello"}) {
        const auto ids = tokenizer.encode_plain(text);
        EXPECT_EQ(tokenizer.decode(ids, false), text);
        for (const auto id : ids) {
            EXPECT_LT(id, tiny.id("<|begin|>"));
        }
    }
    EXPECT_EQ(tokenizer.encode_plain("hello"), tokenizer.encode("hello", false));
}

// NVIDIA/TensorRT-Model-Connect#640
TEST(GgufTokenizer, EveryEndOfAnAnswerIsNamed) {
    const TinyTokenizer tiny;
    auto metadata = tiny.metadata();
    metadata["eom_token_id"] = number(static_cast<std::uint32_t>('e'));
    const SavedTokenizer saved(metadata);
    const auto tokenizer = saved.open();
    EXPECT_THAT(tokenizer.eos_token_ids(),
                ElementsAre('e', tiny.id("<|im_end|>"), tiny.id("<|eot_id|>")));
    EXPECT_EQ(tokenizer.eos_token(), "<|im_end|>");
    EXPECT_EQ(tokenizer.bos_token(), "<|begin|>");
}

TEST(GgufTokenizer, SpecialTokensGoAroundOnlyWhenAsked) {
    const TinyTokenizer tiny;
    const SavedTokenizer saved(TinyTokenizer::metadata_with(true));
    const auto tokenizer = saved.open();
    EXPECT_THAT(tokenizer.encode("h", true), ElementsAre(tiny.id("<|begin|>"), 'h'));
    EXPECT_THAT(tokenizer.encode("h", false), ElementsAre('h'));
    EXPECT_THAT(tokenizer.encode("", true), ElementsAre(tiny.id("<|begin|>")));
}

TEST(GgufTokenizer, LongTextsAreNotCut) {
    const SavedTokenizer saved(TinyTokenizer().metadata());
    const auto tokenizer = saved.open();
    for (const std::string unit : {"x", " ", "\n", "x "}) {
        std::string text;
        while (text.size() < 200000) {
            text += unit;
        }
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false)), text);
    }
}

TEST(GgufTokenizer, InvalidUtf8IsReadAsReplacement) {
    const SavedTokenizer saved(TinyTokenizer().metadata());
    const auto tokenizer = saved.open();
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xFF\xF0\x9F", false)),
              "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Tokenizer, SaysWhichFileIsMissing) {
    const SavedTokenizer saved(TinyTokenizer().metadata());
    std::filesystem::remove(saved.directory() / "openvino_detokenizer.xml");
    try {
        saved.open();
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNotFound);
        EXPECT_THAT(error.what(), HasSubstr("openvino_detokenizer.xml"));
        EXPECT_THAT(error.what(), HasSubstr("shardline import"));
    }
}

TEST(Tokenizer, RefusesFilesThatAreNoTokenizer) {
    const SavedTokenizer saved(TinyTokenizer().metadata());
    for (const std::string content : {"", "<net", "{}", "<net version=\"11\"></net>"}) {
        std::ofstream(saved.directory() / "openvino_tokenizer.xml") << content;
        EXPECT_THROW(saved.open(), Error) << content;
    }
    const SavedTokenizer cut(TinyTokenizer().metadata());
    std::filesystem::resize_file(cut.directory() / "openvino_tokenizer.bin", 100);
    EXPECT_THROW(cut.open(), Error);
}

}  // namespace
}  // namespace shardline
