#include "shard/piece_source.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/sha256.hpp"
#include "model/fingerprint.hpp"
#include "model/model_paths.hpp"

namespace shardline {

PieceSource::PieceSource(const std::filesystem::path& model_directory)
    : xml_(read_text_file(model_directory / kModelXmlName, kMaxModelXmlBytes)),
      fingerprint_(fingerprint_model(xml_, model_directory / kModelBinName)),
      bin_(File::open_read(model_directory / kModelBinName)) {}

Piece PieceSource::read(const ByteRange& range) const {
    if (range.size == 0 || range.size > kPieceBytes || range.size > fingerprint_.bin_bytes ||
        range.offset > fingerprint_.bin_bytes - range.size) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{} has no piece of {} bytes at {}", bin_.path().string(),
                                range.size, range.offset));
    }
    Piece piece;
    piece.offset = range.offset;
    piece.bytes.resize(static_cast<std::size_t>(range.size));
    bin_.read_at(range.offset, piece.bytes);
    piece.sha256 = sha256_hex(piece.bytes);
    return piece;
}

}  // namespace shardline
