#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "model/byte_range.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// No piece is larger or crosses a multiple of this, so that each fits into one message and is
// lost alone.
inline constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

struct Piece {
    std::uint64_t offset = 0;  // in openvino_model.bin
    std::vector<std::byte> bytes;
    std::string sha256;
};

// The giving end of a shard transfer: pieces of a model directory, read when asked for and hashed
// as read. Holds one piece at a time. Single-threaded.
class PieceSource final {
public:
    // Throws Error when the directory's model files cannot be read.
    explicit PieceSource(const std::filesystem::path& model_directory);

    const ModelFingerprint& fingerprint() const { return fingerprint_; }
    const std::string& xml() const { return xml_; }

    // Throws Error(kInvalidArgument) for a range that is empty, larger than a piece or beyond the
    // file: it may come from another host.
    Piece read(const ByteRange& range) const;

private:
    std::string xml_;
    ModelFingerprint fingerprint_;
    File bin_;
};

}  // namespace shardline
