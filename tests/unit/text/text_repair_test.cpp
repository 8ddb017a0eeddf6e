#include "text/text_repair.hpp"

#include <gtest/gtest.h>

#include <random>

namespace shardline {
namespace {

constexpr const char* kBad = "\xEF\xBF\xBD";

std::string times(const std::string& text, int count) {
    std::string all;
    for (int index = 0; index < count; ++index) {
        all += text;
    }
    return all;
}

TEST(Utf8Repair, KeepsWhatIsValid) {
    for (const std::string text : {"", "a", "é", "あ", "👍🏽", "\x7F", "\xEE\x80\x80"}) {
        EXPECT_EQ(repaired_utf8(text), text);
        EXPECT_TRUE(is_valid_utf8(text));
    }
}

TEST(Utf8Repair, ReplacesWhatIsNot) {
    const std::vector<std::pair<std::string, std::string>> cases{
        {"\x80", kBad},
        {"a\xFFz", std::string("a") + kBad + "z"},
        {"\xF0\x9F\x91", kBad},                      // cut off at the end
        {"\xF0\x9F\x91x", std::string(kBad) + "x"},  // cut off by other text
        {"\xC0\x80", times(kBad, 2)},                // overlong
        {"\xED\xA0\x80", times(kBad, 3)},            // surrogate
        {"\xF4\x90\x80\x80", times(kBad, 4)},        // beyond Unicode
        {"\xE2\x82\xC3\xA9", std::string(kBad) + "é"},
    };
    for (const auto& [bytes, text] : cases) {
        EXPECT_EQ(repaired_utf8(bytes), text);
        EXPECT_FALSE(is_valid_utf8(bytes));
        EXPECT_TRUE(is_valid_utf8(repaired_utf8(bytes)));
    }
}

TEST(Utf8Repair, DoesNotDependOnTheCuts) {
    std::mt19937 random(7);
    for (int round = 0; round < 2000; ++round) {
        std::string bytes;
        for (int index = 0; index < 12; ++index) {
            constexpr unsigned char kBytes[] = {'a',  ' ',  0x80, 0x9F, 0xBF, 0xC3,
                                                0xE2, 0xED, 0xF0, 0xF4, 0xFF, 0x90};
            bytes.push_back(static_cast<char>(kBytes[random() % std::size(kBytes)]));
        }
        Utf8Repair repair;
        std::string text;
        for (std::size_t at = 0; at < bytes.size();) {
            const auto count = 1 + random() % 3;
            repair.push(std::string_view(bytes).substr(at, count), text);
            EXPECT_TRUE(is_valid_utf8(text));
            at += count;
        }
        repair.finish(text);
        EXPECT_EQ(text, repaired_utf8(bytes));
    }
}

std::string cleaned(const std::string& text, std::size_t piece) {
    SpaceCleanUp clean_up;
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece) {
        clean_up.push(std::string_view(text).substr(at, piece), out);
    }
    clean_up.finish(out);
    return out;
}

// drumih/turbo-fieldfare#118, openvinotoolkit/openvino.genai#1302
TEST(SpaceCleanUp, ShortensAsHuggingFaceDoes) {
    const std::vector<std::pair<std::string, std::string>> cases{
        {"a .", "a."},      {"    .", "   ."},    {"it 's", "it's"},   {"it ' s", "it's"},
        {"I 'm", "I'm"},    {"we 've", "we've"},  {"do n't", "don't"}, {"they 're", "they're"},
        {"a 'x", "a 'x"},   {"no n'x", "no n'x"}, {" ", " "},          {"a  ", "a  "},
        {"x ' 's", "x''s"}, {"so , ?", "so,?"},   {"n ", "n "},        {" n", " n"},
        {" '", " '"},       {" 'v", " 'v"},       {"\\ \\", "\\\\"},
    };
    for (const auto& [text, expected] : cases) {
        for (const std::size_t piece : {1U, 2U, 3U, 100U}) {
            EXPECT_EQ(cleaned(text, piece), expected) << text << " by " << piece;
        }
    }
}

TEST(LeadingSpaceStrip, TakesOneSpaceFromTheStartOnly) {
    const auto strip = [](bool only_before_text, const std::vector<std::string>& pieces) {
        LeadingSpaceStrip step(only_before_text);
        std::string out;
        for (const auto& piece : pieces) {
            step.push(piece, out);
        }
        step.finish(out);
        return out;
    };
    EXPECT_EQ(strip(false, {" a", " b"}), "a b");
    EXPECT_EQ(strip(false, {"", " ", " b"}), " b");
    EXPECT_EQ(strip(true, {" ", "a"}), "a");
    EXPECT_EQ(strip(true, {" ", " a"}), "  a");
    EXPECT_EQ(strip(true, {" "}), " ");
    EXPECT_EQ(strip(true, {"a", " b"}), "a b");
}

}  // namespace
}  // namespace shardline
