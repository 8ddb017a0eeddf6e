#include "text/tokenizer_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <openvino/core/except.hpp>
#include <system_error>
#include <vector>

#include "base/error.hpp"

namespace shardline {

namespace {

constexpr const char* kLibraryVariable = "SHARDLINE_TOKENIZERS_LIBRARY";
constexpr const char* kLibraryName = "libopenvino_tokenizers.so";

std::vector<std::filesystem::path> candidate_paths() {
    if (const char* chosen = std::getenv(kLibraryVariable); chosen != nullptr && *chosen != 0) {
        return {chosen};  // an explicit choice is not silently replaced by another file
    }
    std::vector<std::filesystem::path> paths{SHARDLINE_TOKENIZERS_BUILT_WITH};
    std::error_code error;
    const auto executable = std::filesystem::read_symlink("/proc/self/exe", error);
    if (!error) {
        paths.push_back(executable.parent_path() / kLibraryName);
    }
    return paths;
}

}  // namespace

TokenizerLibrary TokenizerLibrary::open() {
    std::string tried;
    for (const auto& path : candidate_paths()) {
        std::error_code error;
        if (!std::filesystem::is_regular_file(path, error)) {
            tried += fmt::format("{}{}", tried.empty() ? "" : ", ", path.string());
            continue;
        }
        void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle == nullptr) {
            throw Error(ErrorCode::kUnsupported, fmt::format("cannot load {}: {}", path.string(),
                                                             dlerror()));  // NOLINT(concurrency-*)
        }
        void* symbol = dlsym(handle, "create_tokenizer_node");
        if (symbol == nullptr) {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("{} is not the OpenVINO Tokenizers library this version needs "
                                    "(no create_tokenizer_node)",
                                    path.string()));
        }
        return TokenizerLibrary(path, reinterpret_cast<CreateNode*>(symbol));
    }
    throw Error(ErrorCode::kNotFound,
                fmt::format("{} not found (tried {}); install the openvino-tokenizers wheel beside "
                            "openvino, or set {}",
                            kLibraryName, tried, kLibraryVariable));
}

ov::OutputVector TokenizerLibrary::create(const std::string& op_type,
                                          const ov::OutputVector& inputs,
                                          const ov::AnyMap& attributes) const {
    try {
        return create_node_(op_type, inputs, attributes);
    } catch (const ov::Exception& error) {
        throw Error(ErrorCode::kInternal,
                    fmt::format("cannot make a {} op: {}", op_type, error.what()));
    }
}

}  // namespace shardline
