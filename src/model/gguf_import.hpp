#pragma once

#include <filesystem>
#include <functional>
#include <openvino/core/any.hpp>

namespace shardline {

// Called while a file is imported: what is being done and how far the whole is (0 to 1).
using ImportProgress = std::function<void(const char* phase, double fraction)>;

// Writes openvino_tokenizer.* and openvino_detokenizer.* into `directory` from the `tokenizer.*`
// metadata of a GGUF file, keyed by the last part of the key ("model", "tokens", "merges", ...).
using TokenizerWriter =
    std::function<void(const ov::AnyMap& metadata, const std::filesystem::path& directory)>;

// Makes a model directory from a GGUF file: openvino_model.*, config.json, generation_config.json,
// and what `write_tokenizer` adds. `directory` must not exist or be empty; it appears complete or
// not at all, as everything is written to a directory beside it that is renamed at the end.
// Throws Error naming the file and the key or tensor when the file is damaged, or its
// architecture or a tensor type is not supported; never hands such a file to OpenVINO.
void import_gguf(const std::filesystem::path& file, const std::filesystem::path& directory,
                 const TokenizerWriter& write_tokenizer, const ImportProgress& progress);

}  // namespace shardline
