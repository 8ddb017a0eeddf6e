#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace shardline {

// An array in GGUF metadata; its items stay in the file.
struct GgufArray {
    std::uint32_t item_type = 0;  // GGUF's numbering
    std::uint64_t num_items = 0;
};

using GgufValue =
    std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
    std::string_view name;
    std::vector<std::uint64_t> dimensions;  // 1 to 4, none zero, as stored: innermost first
    std::uint32_t type = 0;                 // ggml's numbering
    std::uint64_t offset = 0;               // in the file
    std::uint64_t bytes = 0;
};

// The head of a GGUF file, checked completely against the file it came from:
//
//     magic version num_tensors num_pairs | key type value ... | name dims type offset ... |
//     padding to the alignment | tensor data
//
// Views point into the bytes given to parse(). Free of OpenVINO.
class GgufHeader final {
public:
    // `file` is the whole file, mapped. Throws Error(kCorrupt) naming the key or tensor whose
    // sizes, counts, types or places contradict the file, Error(kUnsupported) for versions,
    // byte orders and tensor types that are not known. Allocates in proportion to what is there.
    static GgufHeader parse(std::span<const std::byte> file);

    std::uint32_t version() const { return version_; }
    std::uint64_t alignment() const { return alignment_; }
    const std::map<std::string_view, GgufValue>& metadata() const { return metadata_; }
    const std::vector<GgufTensor>& tensors() const { return tensors_; }
    bool has_tensor(std::string_view name) const;

    // Empty when the key is missing or of another kind.
    std::optional<std::string_view> text(std::string_view key) const;
    std::optional<std::uint64_t> number(std::string_view key) const;
    std::optional<double> real(std::string_view key) const;  // also from integers

    std::string_view architecture() const { return architecture_; }

private:
    std::uint32_t version_ = 0;
    std::uint64_t alignment_ = 0;
    std::string_view architecture_;
    std::map<std::string_view, GgufValue> metadata_;
    std::vector<GgufTensor> tensors_;
};

// ggml's name of a tensor type, "type 77" for one that is not known.
std::string gguf_type_name(std::uint32_t type);

}  // namespace shardline
