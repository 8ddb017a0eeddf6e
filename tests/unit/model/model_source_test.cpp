#include "model/model_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <openvino/op/constant.hpp>
#include <openvino/op/matmul.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "unit/model/test_models.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class ModelSourceTest : public testing::Test {
protected:
    void SetUp() override {
        const fs::path tiny = path_from_environment("SHARDLINE_TINY_MODELS");
        if (tiny.empty()) {
            GTEST_SKIP() << "SHARDLINE_TINY_MODELS is not set";
        }
        tiny_ = tiny;
    }

    // A copy of a tiny model that a test may damage.
    fs::path copy(const std::string& name) {
        const fs::path directory = scratch_.path() / name;
        fs::copy(tiny_ / name, directory);
        return directory;
    }

    static void write(const fs::path& file, const std::string& text) {
        std::ofstream(file, std::ios::binary) << text;
    }

    // The message of the Error that opening throws, checked to have the expected code.
    static std::string refusal(const fs::path& directory, ErrorCode code) {
        try {
            ModelSource::open(directory);
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), code) << error.what();
            return error.what();
        }
        ADD_FAILURE() << directory << " was opened";
        return {};
    }

    fs::path tiny_;
    ScratchDirectory scratch_;
};

TEST_F(ModelSourceTest, DescribesAModel) {
    const ModelSource source = ModelSource::open(tiny_ / "llama");
    EXPECT_EQ(source.info().name, "llama");
    EXPECT_EQ(source.info().architecture, "llama");
    EXPECT_EQ(source.info().num_layers, 4U);
    EXPECT_EQ(source.info().hidden_size, 64U);
    EXPECT_EQ(source.info().vocab_size, 256U);
    EXPECT_EQ(source.info().context_length, 512U);
    EXPECT_THAT(source.info().eos_token_ids, ElementsAre(2));
    EXPECT_EQ(source.info().weights_bytes, fs::file_size(tiny_ / "llama" / kModelBinName));
    EXPECT_EQ(source.fingerprint().bin_bytes, source.info().weights_bytes);
    EXPECT_EQ(source.fingerprint().xml_sha256.size(), 64U);
}

TEST_F(ModelSourceTest, OpensEveryFamily) {
    for (const auto& entry : fs::directory_iterator(tiny_)) {
        const ModelSource source = ModelSource::open(entry.path());
        const std::string name = entry.path().filename().string();
        const std::uint32_t num_layers = name == "mamba"    ? 0
                                         : name == "lfm2"   ? 2
                                         : name == "gemma3" ? 6
                                                            : 4;
        EXPECT_EQ(source.info().num_layers, num_layers) << name;
        EXPECT_EQ(source.info().hidden_size, 64U) << name;
        EXPECT_EQ(source.info().vocab_size, 256U) << name;
    }
}

// The names tie graph and file together: the data of every constant of a graph as read lies in
// the mapping exactly where the map says.
TEST_F(ModelSourceTest, WeightMapAgreesWithTheGraph) {
    for (const auto& entry : fs::directory_iterator(tiny_)) {
        const ModelSource source = ModelSource::open(entry.path());
        const MappedFile bin(entry.path() / kModelBinName);
        const auto graph = source.read_graph();
        std::size_t num_constants = 0;
        for (const auto& op : graph->get_ops()) {
            const auto constant = ov::as_type_ptr<ov::op::v0::Constant>(op);
            if (!constant) {
                continue;
            }
            ++num_constants;
            const auto [first, last] =
                source.weight_map().constants().equal_range(constant->get_friendly_name());
            ASSERT_EQ(std::distance(first, last), 1) << entry << constant->get_friendly_name();
            ASSERT_EQ(first->second.size, constant->get_byte_size());
            ASSERT_EQ(0, std::memcmp(bin.bytes().data() + first->second.offset,
                                     constant->get_data_ptr(), constant->get_byte_size()))
                << entry << constant->get_friendly_name();
        }
        EXPECT_EQ(weight_ranges(source.weight_map(), graph).size(), num_constants);
    }
}

TEST_F(ModelSourceTest, EosIsTheUnionOfAllSources) {
    const fs::path directory = copy("llama-int8");
    write(directory / "config.json",
          R"({"eos_token_id": null, "text_config": {"eos_token_id": 9}})");
    write(directory / "generation_config.json", R"({"eos_token_id": [7, 5, -1, 100000]})");
    write(directory / "tokenizer_config.json",
          R"({"eos_token": {"content": "<end>"},
              "added_tokens_decoder": {"11": {"content": "<end>"}, "12": {"content": "<pad>"}}})");
    write(directory / "openvino_tokenizer.xml",
          R"(<net name="t"><layers/><rt_info><eos_token_id value="13"/></rt_info></net>)");
    EXPECT_THAT(ModelSource::open(directory).info().eos_token_ids, ElementsAre(5, 7, 9, 11, 13));
}

TEST_F(ModelSourceTest, ContextLengthFromTheNestedConfig) {
    const fs::path directory = copy("llama");
    write(directory / "config.json", R"({"text_config": {"max_position_embeddings": 4096}})");
    EXPECT_EQ(ModelSource::open(directory).info().context_length, 4096U);
    write(directory / "config.json", R"({"n_positions": 77})");
    EXPECT_EQ(ModelSource::open(directory).info().context_length, 77U);
    fs::remove(directory / "config.json");
    EXPECT_EQ(ModelSource::open(directory).info().context_length, 0U);
}

TEST_F(ModelSourceTest, MalformedJsonNamesFileAndPlace) {
    const fs::path directory = copy("llama");
    for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json",
                             "openvino_config.json"}) {
        const fs::path file = directory / name;
        write(file, "{\n  \"a\": 1,\n  oops\n}");
        const std::string message = refusal(directory, ErrorCode::kCorrupt);
        EXPECT_THAT(message, HasSubstr(name));
        EXPECT_THAT(message, HasSubstr("line 3"));
        write(file, "[1]");
        EXPECT_THAT(refusal(directory, ErrorCode::kCorrupt), HasSubstr("not a JSON object"));
        fs::remove(file);
    }
    write(directory / "config.json", R"({"max_position_embeddings": "many"})");
    EXPECT_THAT(refusal(directory, ErrorCode::kCorrupt), HasSubstr("max_position_embeddings"));
    write(directory / "config.json", R"({"eos_token_id": "</s>"})");
    EXPECT_THAT(refusal(directory, ErrorCode::kCorrupt), HasSubstr("eos_token_id"));
}

TEST_F(ModelSourceTest, MissingFilesAreNamed) {
    EXPECT_THAT(refusal(scratch_.path() / "nowhere", ErrorCode::kNotFound), HasSubstr("nowhere"));
    EXPECT_THAT(refusal(scratch_.path(), ErrorCode::kNotFound), HasSubstr(kModelXmlName));
    const fs::path directory = copy("llama");
    fs::remove(directory / kModelBinName);
    EXPECT_THAT(refusal(directory, ErrorCode::kNotFound), HasSubstr(kModelBinName));
    EXPECT_THAT(refusal(directory / kModelXmlName, ErrorCode::kInvalidArgument),
                HasSubstr("not a model directory"));
}

TEST_F(ModelSourceTest, WeightsCutShortAreRefusedWithBothSizes) {
    const fs::path directory = copy("llama");
    const auto size = fs::file_size(directory / kModelBinName);
    for (const std::uintmax_t left : {std::uintmax_t{0}, size / 2, size - 1}) {
        fs::resize_file(directory / kModelBinName, left);
        const std::string message = refusal(directory, ErrorCode::kCorrupt);
        EXPECT_THAT(message, HasSubstr("cut short"));
        EXPECT_THAT(message, HasSubstr(std::to_string(size)));
        EXPECT_THAT(message, HasSubstr("only " + std::to_string(left)));
    }
}

TEST_F(ModelSourceTest, DamagedXmlIsRefused) {
    const fs::path directory = copy("llama");
    const fs::path file = directory / kModelXmlName;
    const std::string xml = read_text_file(file, std::uint64_t{1} << 30);
    for (const std::string& damaged :
         {std::string(), std::string("plain text"), xml.substr(0, xml.size() / 2),
          std::string("<net/>"), std::string("<html></html>")}) {
        write(file, damaged);
        EXPECT_THAT(refusal(directory, ErrorCode::kCorrupt), HasSubstr(kModelXmlName));
    }
    const auto replaced = [&](const std::string& from, const std::string& to) {
        std::string text = xml;
        const auto at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return text.replace(at, from.size(), to);
    };
    write(file, replaced("offset=\"0\"", "offset=\"18446744073709551615\""));
    EXPECT_THAT(refusal(directory, ErrorCode::kCorrupt), HasSubstr("cut short"));
    write(file, replaced("offset=\"0\"", "offset=\"-1\""));
    EXPECT_THAT(refusal(directory, ErrorCode::kCorrupt), HasSubstr("no valid offset"));
    write(file, replaced("type=\"MatMul\"", "type=\"Sorcery\""));
    EXPECT_THAT(refusal(directory, ErrorCode::kCorrupt), HasSubstr("OpenVINO cannot read"));
}

TEST_F(ModelSourceTest, DeeplyNestedXmlIsRefused) {
    const fs::path directory = copy("llama");
    std::string xml = "<net>";
    for (int i = 0; i < 200000; ++i) {
        xml += "<a>";
    }
    write(directory / kModelXmlName, xml);
    refusal(directory, ErrorCode::kCorrupt);
}

TEST_F(ModelSourceTest, ModelsThatAreNoLanguageModelsAreRefused) {
    const auto input = std::make_shared<ov::op::v0::Parameter>(ov::element::f32, ov::Shape{1, 8});
    const auto weights = ov::op::v0::Constant::create(ov::element::f32, {8, 8}, {1.0F});
    const auto product = std::make_shared<ov::op::v0::MatMul>(input, weights);
    const auto save = [&] {
        const auto model =
            std::make_shared<ov::Model>(ov::OutputVector{product}, ov::ParameterVector{input});
        ov::save_model(model, scratch_.path() / kModelXmlName, false);
    };
    save();
    EXPECT_THAT(refusal(scratch_.path(), ErrorCode::kUnsupported), HasSubstr("input_ids"));
    input->output(0).set_names({"input_ids"});
    save();
    EXPECT_THAT(refusal(scratch_.path(), ErrorCode::kUnsupported), HasSubstr("logits"));
    product->output(0).set_names({"logits"});
    save();
    EXPECT_THAT(refusal(scratch_.path(), ErrorCode::kUnsupported), HasSubstr("embedding"));
}

}  // namespace
}  // namespace shardline
