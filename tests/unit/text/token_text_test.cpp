#include "text/token_text.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/error.hpp"
#include "text/text_repair.hpp"
#include "unit/text/tiny_tokenizer.hpp"

namespace shardline {
namespace {

class TokenTextTest : public testing::Test {
protected:
    static void SetUpTestSuite() {
        tokenizer_ = std::make_unique<Tokenizer>(SavedTokenizer(TinyTokenizer().metadata()).open());
    }
    static void TearDownTestSuite() { tokenizer_.reset(); }

    static std::vector<std::int64_t> bytes(const std::string& text) {
        std::vector<std::int64_t> ids;
        for (const char byte : text) {
            ids.push_back(static_cast<unsigned char>(byte));
        }
        return ids;
    }

    // All pieces; the last is what finish() gave.
    static std::vector<std::string> pieces(const std::vector<std::int64_t>& ids,
                                           std::vector<std::string> stops = {}) {
        TokenText text(*tokenizer_, std::move(stops));
        std::vector<std::string> all;
        for (const auto id : ids) {
            all.push_back(text.push(id));
        }
        all.push_back(text.finish());
        return all;
    }

    static std::string joined(const std::vector<std::string>& parts) {
        std::string all;
        for (const auto& part : parts) {
            all += part;
        }
        return all;
    }

    static std::unique_ptr<Tokenizer> tokenizer_;
};

std::unique_ptr<Tokenizer> TokenTextTest::tokenizer_;

// abetlen/llama-cpp-python#372
TEST_F(TokenTextTest, EmojiOfSeveralTokensComesOutWhole) {
    const TinyTokenizer tiny;
    std::vector<std::int64_t> ids{tiny.id("\xF0\x9F"), 0x91, 0x8D, ' ', 'o', 'k'};
    EXPECT_EQ(pieces(ids), (std::vector<std::string>{"", "", "👍", " ", "o", "k", ""}));
    EXPECT_EQ(tokenizer_->token_bytes(ids[0]), "\xF0\x9F");
    EXPECT_EQ(tokenizer_->token_bytes(0x91), "\x91");
}

// ggml-org/llama.cpp#11738
TEST_F(TokenTextTest, LoneAndCutOffBytesBecomeReplacements) {
    EXPECT_EQ(pieces({0x80}), (std::vector<std::string>{"\xEF\xBF\xBD", ""}));
    EXPECT_EQ(pieces({'a', 0xE3, 0x81}), (std::vector<std::string>{"a", "", "", "\xEF\xBF\xBD"}));
    EXPECT_EQ(joined(pieces({0xE3, 0x81, 'b'})),
              "\xEF\xBF\xBD"
              "b");
}

// SharpAI/SwiftLM#126
TEST_F(TokenTextTest, AStopStringAcrossTokensNeverShows) {
    TokenText text(*tokenizer_, {"\nQ:"});
    EXPECT_EQ(text.push('a'), "a");
    EXPECT_EQ(text.push('\n'), "");
    EXPECT_EQ(text.push('Q'), "");
    EXPECT_EQ(text.push(':'), "");
    EXPECT_TRUE(text.stopped());
    EXPECT_EQ(text.push('b'), "");
    EXPECT_EQ(text.finish(), "");
}

TEST_F(TokenTextTest, AFalseStartComesOutWhole) {
    TokenText text(*tokenizer_, {"\nQ:"});
    EXPECT_EQ(text.push('a'), "a");
    EXPECT_EQ(text.push('\n'), "");
    EXPECT_EQ(text.push('Q'), "");
    EXPECT_EQ(text.push('x'), "\nQx");
    EXPECT_FALSE(text.stopped());
    EXPECT_EQ(text.push('\n'), "");
    EXPECT_EQ(text.finish(), "\n");
}

TEST_F(TokenTextTest, TheFirstOfSeveralStopsCounts) {
    EXPECT_EQ(joined(pieces(bytes("one two three"), {"three", "two", ""})), "one ");
    EXPECT_EQ(joined(pieces(bytes("aaab"), {"aab"})), "a");
    EXPECT_EQ(joined(pieces(bytes("abcabd"), {"abd", "bcx"})), "abc");
    EXPECT_EQ(joined(pieces(bytes("naïve 👍 end"), {"👍"})), "naïve ");
    EXPECT_THROW(TokenText(*tokenizer_, {"\xFF"}), Error);
}

TEST_F(TokenTextTest, ABrokenEndMayCompleteAStop) {
    TokenText text(*tokenizer_, {"\xEF\xBF\xBD"});
    EXPECT_EQ(text.push('a'), "a");
    EXPECT_EQ(text.push(0xF0), "");
    EXPECT_EQ(text.finish(), "");
    EXPECT_TRUE(text.stopped());
}

TEST_F(TokenTextTest, ControlTokensLeaveNoText) {
    const TinyTokenizer tiny;
    EXPECT_EQ(joined(pieces({'a', tiny.id("<|im_end|>"), tiny.id("<tool_call>"), 'b', 1 << 20})),
              "a<tool_call>b");
}

// drumih/turbo-fieldfare#118
TEST_F(TokenTextTest, RunsOfSpacesKeepTheirPlace) {
    const TinyTokenizer tiny;
    EXPECT_EQ(joined(pieces({tiny.id("    "), '.', tiny.id(" a"), tiny.id("  "), '\''})),
              "    . a  '");
}

TEST_F(TokenTextTest, PiecesJoinToTheWholeDecoding) {
    std::mt19937 random(20261201);
    const auto vocab_size = tokenizer_->vocab_size();
    for (int round = 0; round < 3000; ++round) {
        std::vector<std::int64_t> ids;
        for (std::size_t count = random() % 24; count > 0; --count) {
            // Mostly bytes that begin and continue characters: there the trouble is.
            ids.push_back(random() % 3 == 0 ? random() % vocab_size : 0x80 + random() % 0x80);
        }
        std::string text;
        for (const auto& piece : pieces(ids)) {
            EXPECT_TRUE(is_valid_utf8(piece));
            text += piece;
        }
        ASSERT_EQ(text, tokenizer_->decode(ids));
    }
}

TEST_F(TokenTextTest, StopsCutWhereTheWholeTextWouldBeCut) {
    std::mt19937 random(4711);
    const std::vector<std::string> stops{"ab", "ba", "aab", "é", "👍"};
    for (int round = 0; round < 3000; ++round) {
        std::vector<std::int64_t> ids;
        for (std::size_t count = random() % 12; count > 0; --count) {
            const std::string part =
                std::vector<std::string>{"a", "b", "é", "👍", "c"}[random() % 5];
            for (const auto id : bytes(part)) {
                ids.push_back(id);
            }
        }
        auto whole = tokenizer_->decode(ids);
        std::size_t cut = std::string::npos;
        for (const auto& stop : stops) {
            cut = std::min(cut, whole.find(stop));
        }
        ASSERT_EQ(joined(pieces(ids, stops)), whole.substr(0, cut)) << whole;
    }
}

}  // namespace
}  // namespace shardline
