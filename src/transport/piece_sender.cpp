#include "transport/piece_sender.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/sha256.hpp"
#include "fleet.pb.h"
#include "transport/model_fetch.hpp"

namespace shardline {

PieceSender::PieceSender(std::filesystem::path model_directory, ModelFingerprint fingerprint)
    : model_directory_(std::move(model_directory)), fingerprint_(std::move(fingerprint)) {}

const PieceSource& PieceSender::source() {
    if (source_) {
        return *source_;
    }
    if (model_directory_.empty()) {
        throw Error(ErrorCode::kNotFound, "it lacks the model, and there is none here to send");
    }
    source_.emplace(model_directory_);
    if (source_->fingerprint() != fingerprint_) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{} holds another model than the stages ask for",
                                model_directory_.string()));
    }
    return *source_;
}

bool PieceSender::answer(const wire::LoadReply& reply, const Write& write) {
    if (reply.has_need_xml()) {
        send_xml(write);
        return true;
    }
    if (!reply.has_need_pieces()) {
        return false;
    }
    const auto& ranges = reply.need_pieces().ranges();
    if (static_cast<std::size_t>(ranges.size()) > kPiecesPerRequest) {
        throw Error(ErrorCode::kCorrupt, fmt::format("it asks for {} pieces at once, the limit "
                                                     "is {}",
                                                     ranges.size(), kPiecesPerRequest));
    }
    for (const wire::ByteRange& range : ranges) {
        Piece piece = source().read({range.offset(), range.size()});
        wire::LoadRequest request;
        wire::Piece& message = *request.mutable_bin_piece();
        message.set_offset(piece.offset);
        message.set_data(piece.bytes.data(), piece.bytes.size());
        message.set_sha256(std::move(piece.sha256));
        if (!write(request)) {
            return true;
        }
    }
    return true;
}

void PieceSender::send_xml(const Write& write) {
    const std::string& xml = source().xml();
    // A whole last piece is followed by an empty one, which ends the text.
    for (std::size_t offset = 0; offset <= xml.size(); offset += kPieceBytes) {
        const std::size_t size = std::min<std::size_t>(kPieceBytes, xml.size() - offset);
        wire::LoadRequest request;
        wire::Piece& message = *request.mutable_xml_piece();
        message.set_offset(offset);
        message.set_data(xml.data() + offset, size);
        message.set_sha256(sha256_hex(std::as_bytes(std::span(xml).subspan(offset, size))));
        if (!write(request)) {
            return;
        }
    }
}

}  // namespace shardline
