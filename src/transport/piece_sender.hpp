#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "shard/piece_source.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

namespace wire {
class LoadReply;
class LoadRequest;
}  // namespace wire

// The coordinator's answers to a worker that lacks parts of the model. Reads the model directory
// only when asked for something. Used by one load, from its thread.
class PieceSender final {
public:
    // False when the stream is closed.
    using Write = std::function<bool(const wire::LoadRequest&)>;

    PieceSender(std::filesystem::path model_directory, ModelFingerprint fingerprint);

    // True when the reply asked for something, which has then been written. Throws Error when the
    // directory is not there or holds another model, or when the request makes no sense.
    bool answer(const wire::LoadReply& reply, const Write& write);

private:
    const PieceSource& source();
    void send_xml(const Write& write);

    const std::filesystem::path model_directory_;
    const ModelFingerprint fingerprint_;
    std::optional<PieceSource> source_;
};

}  // namespace shardline
