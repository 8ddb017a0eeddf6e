#pragma once

#include <filesystem>
#include <openvino/core/any.hpp>
#include <openvino/core/node_output.hpp>
#include <string>

namespace shardline {

// The shared library of OpenVINO Tokenizers: the extension that runs tokenizer models, and the
// factory that makes their ops. Once loaded it stays until the process ends, because graphs built
// with it keep pointing into its code. Cheap to copy, thread-safe.
class TokenizerLibrary final {
public:
    // Looks at the environment variable SHARDLINE_TOKENIZERS_LIBRARY, then in the Python
    // environment the build used, then beside the executable. Throws Error(kNotFound) naming all
    // three, or Error(kUnsupported) when the library found is not one we can use.
    static TokenizerLibrary open();

    const std::filesystem::path& path() const { return path_; }

    // One op of the library by its type name. Throws Error(kInternal) when it refuses.
    ov::OutputVector create(const std::string& op_type, const ov::OutputVector& inputs,
                            const ov::AnyMap& attributes = {}) const;

private:
    using CreateNode = ov::OutputVector(const std::string&, const ov::OutputVector&,
                                        const ov::AnyMap&);

    TokenizerLibrary(std::filesystem::path path, CreateNode* create_node)
        : path_(std::move(path)), create_node_(create_node) {}

    std::filesystem::path path_;
    CreateNode* create_node_;
};

}  // namespace shardline
