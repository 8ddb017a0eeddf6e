#include "text/gguf_pre_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.hpp"

namespace shardline {

namespace {

// The patterns are those of the models' own tokenizer.json files (PCRE2 knows all they use).
constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                               R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kBailing = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}|)"
                                 R"( ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoder = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                                   R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr const char* kHanKana = "[一-龥぀-ゟ゠-ヿ]+";
constexpr const char* kHanHangul = "[一-龥ࠀ-一가-퟿]+";

struct Family {
    std::vector<std::string_view> names;
    std::vector<const char*> patterns;
    bool add_bos_by_default = false;
};

std::vector<Family> known_families() {
    return {
        {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
        {{"gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4", "gigachat",
          "granite-docling", "mellum", "a.x-4.0", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de"},
         {kGpt2}},
        {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
         {R"(\p{N})", kGpt2}},
        {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
        {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
         {kLlama3},
         true},
        {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {kLlama3}},
        {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2", "solar-open"},
         {kQwen2}},
        {{"qwen35"}, {kQwen35}},
        {{"deepseek-llm"},
         {R"([\r\n])", R"(\s?\p{L&}+)", R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kHanHangul,
          R"(\p{N}+)"}},
        {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHanHangul, R"(\p{N})"}},
        {{"deepseek-v3", "hunyuan-dense"}, {R"(\p{N}{1,3})", kHanKana, kDeepseek3}},
        {{"tekken"}, {kTekken}, true},
        {{"gpt-4o", "llama4", "minimax-m2"}, {kGpt4o}},
        {{"bailingmoe", "ling-coder", "llada-moe"}, {kBailing}},
        {{"seed-coder"}, {kSeedCoder}},
        {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
        {{"viking"}, {kBloom, R"(\p{N})"}},
    };
}

}  // namespace

GgufPreTokenizer gguf_pre_tokenizer(const std::string& name) {
    for (const auto& family : known_families()) {
        if (std::find(family.names.begin(), family.names.end(), name) != family.names.end()) {
            return {{family.patterns.begin(), family.patterns.end()}, family.add_bos_by_default};
        }
    }
    throw Error(ErrorCode::kUnsupported,
                fmt::format("GGUF pre-tokenizer \"{}\" (tokenizer.ggml.pre) is not known to this "
                            "version; use an OpenVINO model directory with its own tokenizer",
                            name));
}

}  // namespace shardline
