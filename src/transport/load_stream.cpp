#include "transport/load_stream.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/sha256.hpp"
#include "model/model_paths.hpp"
#include "transport/model_fetch.hpp"
#include "transport/protocol.hpp"
#include "transport/wire_codec.hpp"
#include "transport/wire_spec.hpp"
#include "transport/worker_client.hpp"

namespace shardline {
namespace {

constexpr std::chrono::milliseconds kProgressPeriod{100};

// The coordinator reads a piece from its disk and sends it; slow networks need their time.
constexpr std::chrono::milliseconds kPieceTimeout{60'000};

class LoadPeer final {
public:
    LoadPeer(Watchdog& watchdog, grpc::ServerContext& context, LoadStream& stream)
        : watchdog_(watchdog), context_(context), stream_(stream) {}

    void read(wire::LoadRequest& request, std::chrono::milliseconds timeout) {
        const auto guard = watchdog_.arm(timeout, [this] { context_.TryCancel(); });
        if (!stream_.Read(&request)) {
            throw Error(ErrorCode::kUnavailable, "the coordinator has gone, loading is given up");
        }
    }

    std::string read_xml() {
        wire::LoadReply reply;
        reply.mutable_need_xml();
        stream_.Write(reply);
        std::string xml;
        wire::LoadRequest request;
        do {
            read(request, kPieceTimeout);
            const wire::Piece& piece = request.xml_piece();
            const bool sound = request.has_xml_piece() && piece.offset() == xml.size() &&
                               piece.data().size() <= kPieceBytes &&
                               sha256_hex(std::as_bytes(std::span(piece.data()))) == piece.sha256();
            if (!sound || xml.size() + piece.data().size() > kMaxModelXmlBytes) {
                throw Error(ErrorCode::kCorrupt, "the model's graph arrives damaged");
            }
            xml += piece.data();
        } while (request.xml_piece().data().size() == kPieceBytes);
        return xml;
    }

    void read_pieces(const std::vector<ByteRange>& ranges,
                     const std::function<void(const Piece&)>& take) {
        wire::LoadReply reply;
        for (const ByteRange& range : ranges) {
            wire::ByteRange& asked = *reply.mutable_need_pieces()->add_ranges();
            asked.set_offset(range.offset);
            asked.set_size(range.size);
        }
        stream_.Write(reply);
        wire::LoadRequest request;
        for (const ByteRange& range : ranges) {
            read(request, kPieceTimeout);
            const wire::Piece& message = request.bin_piece();
            if (!request.has_bin_piece() || message.offset() != range.offset ||
                message.data().size() != range.size) {
                throw Error(ErrorCode::kCorrupt, "another piece came than was asked for");
            }
            const auto bytes = std::as_bytes(std::span(message.data()));
            take({message.offset(), {bytes.begin(), bytes.end()}, message.sha256()});
        }
    }

    // Not each of many, but always the last.
    void report(const char* phase, double fraction) {
        if (context_.IsCancelled()) {
            throw Error(ErrorCode::kUnavailable, "the coordinator has gone, loading is given up");
        }
        const auto now = std::chrono::steady_clock::now();
        if (now < next_report_ && fraction < 1.0) {
            return;
        }
        next_report_ = now + kProgressPeriod;
        wire::LoadReply reply;
        reply.mutable_progress()->set_phase(wire_text(phase));
        reply.mutable_progress()->set_fraction(fraction);
        stream_.Write(reply);
    }

private:
    Watchdog& watchdog_;
    grpc::ServerContext& context_;
    LoadStream& stream_;
    std::chrono::steady_clock::time_point next_report_;
};

StagePlace decode_place(const wire::LoadStage& order) {
    StagePlace place{order.stage(), order.downstream_address(), order.stages_after()};
    if (!place.downstream_address.empty()) {
        parse_address(place.downstream_address);
    }
    if (place.stage >= kMaxStages || place.stages_after >= kMaxStages) {
        throw Error(ErrorCode::kCorrupt, "a chain of too many stages");
    }
    return place;
}

void write_ready(LoadStream& stream, const StageSpec& spec, const LoadedStage& loaded) {
    wire::LoadReply reply;
    wire::StageReady& ready = *reply.mutable_ready();
    encode_effective(loaded.effective, *ready.mutable_effective());
    ready.set_num_blocks(spec.num_blocks);
    ready.set_max_rows(spec.max_rows);
    ready.set_max_context(spec.max_context);
    ready.set_weights_bytes(loaded.weights_bytes);
    ready.set_kv_pool_bytes(loaded.kv_pool_bytes);
    ready.set_resident_bytes(loaded.resident_bytes);
    ready.set_reused(loaded.reused);
    stream.Write(reply);
}

}  // namespace

void serve_load(WorkerHost& host, Watchdog& watchdog, grpc::ServerContext& context,
                LoadStream& stream) {
    LoadPeer peer(watchdog, context, stream);
    wire::LoadRequest request;
    peer.read(request, kHelloTimeout);
    if (!request.has_stage()) {
        throw Error(ErrorCode::kCorrupt, "the first message of a load names no stage");
    }
    const wire::LoadStage& order = request.stage();
    const auto session = host.join(decode_hello(order.hello(), host.name()));
    const StageSpec spec = decode_spec(order.spec());
    PieceSupplier supplier;
    supplier.xml = [&peer] { return peer.read_xml(); };
    supplier.pieces = [&peer](const std::vector<ByteRange>& ranges,
                              const std::function<void(const Piece&)>& take) {
        peer.read_pieces(ranges, take);
    };
    const LoadedStage loaded = host.load(
        session, spec, decode_place(order), supplier, [&context] { context.TryCancel(); },
        [&peer](const char* phase, double fraction) { peer.report(phase, fraction); });
    write_ready(stream, spec, loaded);
}

}  // namespace shardline
