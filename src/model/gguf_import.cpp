#include "model/gguf_import.hpp"

#include <fmt/format.h>

#include <charconv>
#include <openvino/frontend/extension/decoder_transformation.hpp>
#include <openvino/frontend/gguf/adapt_to_genai.hpp>
#include <openvino/frontend/gguf/frontend.hpp>
#include <openvino/frontend/gguf/make_stateful.hpp>
#include <openvino/frontend/gguf/tokenizer_metadata.hpp>
#include <openvino/openvino.hpp>
#include <openvino/pass/manager.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/platform.hpp"
#include "model/gguf_config.hpp"
#include "model/gguf_header.hpp"
#include "model/gguf_support.hpp"
#include "model/model_source.hpp"
#include "model/openvino_error.hpp"
#include "model/rope_factors.hpp"

namespace shardline {

namespace {

namespace fs = std::filesystem;
namespace gguf = ov::frontend::gguf;

// A directory that is removed again unless it was moved to where it belongs.
class DirectoryInProgress final {
public:
    explicit DirectoryInProgress(const fs::path& target) : target_(fs::absolute(target)) {
        if (!target_.has_filename()) {
            target_ = target_.parent_path();  // a trailing slash
        }
        if (fs::exists(target_) && (!fs::is_directory(target_) || !fs::is_empty(target_))) {
            throw Error(ErrorCode::kInvalidArgument,
                        fmt::format("{} is already there; remove it or choose another place",
                                    target.string()));
        }
        remove_abandoned();
        path_ = target_.string() + kMark + std::to_string(own_pid());
        fs::remove_all(path_);
        fs::create_directories(path_);
    }
    DirectoryInProgress(const DirectoryInProgress&) = delete;
    DirectoryInProgress& operator=(const DirectoryInProgress&) = delete;
    ~DirectoryInProgress() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }

    const fs::path& path() const { return path_; }
    const fs::path& target() const { return target_; }

    void commit() {
        for (const auto& entry : fs::directory_iterator(path_)) {
            File::open_read(entry.path()).sync();
        }
        sync_directory(path_);
        fs::rename(path_, target_);
        sync_directory(target_.parent_path());
    }

private:
    static constexpr const char* kMark = ".importing-";  // the process id follows

    // What an import left behind that was killed.
    void remove_abandoned() const {
        const std::string prefix = target_.filename().string() + kMark;
        std::error_code error;
        for (const auto& entry : fs::directory_iterator(target_.parent_path(), error)) {
            const std::string name = entry.path().filename().string();
            int pid = 0;
            const char* end = name.data() + name.size();
            if (name.starts_with(prefix) &&
                std::from_chars(name.data() + prefix.size(), end, pid).ptr == end && pid > 0 &&
                process_memory(pid).anonymous_bytes == 0) {
                fs::remove_all(entry.path(), error);
            }
        }
    }

    fs::path target_;
    fs::path path_;
};

std::shared_ptr<ov::Model> convert(const fs::path& file) {
    gguf::FrontEnd frontend;
    frontend.add_extension(std::make_shared<ov::frontend::DecoderTransformationExtension>(
        gguf::pass::GGUFMakeStateful()));
    auto model = frontend.convert(frontend.load(file.string()));
    ov::pass::Manager passes;
    passes.register_pass<gguf::pass::AdaptToGenAI>();
    passes.run_passes(model);
    return model;
}

ov::AnyMap tokenizer_metadata(const ov::Model& model) {
    const auto& info = model.get_rt_info();
    const auto found = info.find(gguf::gguf_tokenizer_metadata_key());
    if (found == info.end()) {
        return {};
    }
    const auto metadata = found->second.as<std::shared_ptr<gguf::GGUFTokenizerMetadata>>();
    return metadata ? metadata->config : ov::AnyMap{};
}

void require_disk_space(const fs::path& directory, std::uint64_t bytes) {
    std::error_code error;
    const fs::space_info space = fs::space(directory, error);
    if (!error && space.available < bytes) {
        throw Error(ErrorCode::kResourceExhausted,
                    fmt::format("{} has room for {} MB, the imported model takes about {} MB",
                                directory.string(), space.available >> 20U, bytes >> 20U));
    }
}

// Reads the whole header and checks that there is something to be made of it.
GgufHeader checked_header(const MappedFile& mapped) {
    GgufHeader header = GgufHeader::parse(mapped.bytes());
    require_importable(header);
    return header;
}

void import_into(DirectoryInProgress& work, const fs::path& file, const MappedFile& mapped,
                 const GgufHeader& header, const TokenizerWriter& write_tokenizer,
                 const ImportProgress& report) {
    require_disk_space(work.path(), mapped.bytes().size());
    report("converting", 0.02);
    const std::shared_ptr<ov::Model> model = convert(file);
    apply_rope_factors(model, header, mapped.bytes());
    const ov::AnyMap metadata = tokenizer_metadata(*model);

    report("writing weights", 0.4);
    ov::save_model(model, (work.path() / kModelXmlName).string(), /*compress_to_fp16=*/false);

    report("writing tokenizer", 0.85);
    const GgufConfig config = make_gguf_config(file.stem().string(), header, metadata);
    write_file_atomically(work.path() / "config.json", config.config_json);
    write_file_atomically(work.path() / "generation_config.json", config.generation_config_json);
    if (write_tokenizer) {
        write_tokenizer(metadata, work.path());
    }

    report("verifying", 0.9);
    ModelSource::open(work.path());  // also shows that a full disk cut nothing short
    work.commit();
    report("done", 1.0);
}

}  // namespace

void import_gguf(const fs::path& file, const fs::path& directory,
                 const TokenizerWriter& write_tokenizer, const ImportProgress& progress) {
    const ImportProgress report = [&](const char* phase, double fraction) {
        if (progress) {
            progress(phase, fraction);
        }
    };
    report("checking", 0.0);
    const MappedFile mapped(file);
    try {
        const GgufHeader header = checked_header(mapped);
        DirectoryInProgress work(directory);
        import_into(work, file, mapped, header, write_tokenizer, report);
    } catch (const Error& error) {
        throw Error(error.code(), fmt::format("cannot import {}: {}", file.string(), error.what()));
    } catch (const fs::filesystem_error& error) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("cannot import {}: {}", file.string(), error.what()));
    } catch (const ov::Exception& error) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("cannot import {}: OpenVINO: {}", file.string(),
                                openvino_reason(error.what())));
    }
}

}  // namespace shardline
