#include "transport/model_fetch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "model/fingerprint.hpp"
#include "model/model_paths.hpp"
#include "shard/part_ranges.hpp"
#include "shard/range_algebra.hpp"
#include "shard/shard_store.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// A piece that is damaged more often than this is damaged at its source.
constexpr int kMaxAttempts = 3;

// Two workers of one host share a store; one waits until the other has what it needs.
constexpr std::chrono::milliseconds kStoreRetry{200};
constexpr std::chrono::minutes kStorePatience{30};

std::unique_ptr<ShardStore> open_store(const fs::path& root, const ModelFingerprint& fingerprint,
                                       const LoadProgress& progress) {
    const auto deadline = std::chrono::steady_clock::now() + kStorePatience;
    while (true) {
        try {
            return std::make_unique<ShardStore>(root, fingerprint);
        } catch (const Error& error) {
            if (error.code() != ErrorCode::kUnavailable ||
                std::chrono::steady_clock::now() > deadline) {
                throw;
            }
        }
        progress("waiting for another worker's transfer", 0.0);  // throws when nobody waits for us
        std::this_thread::sleep_for(kStoreRetry);
    }
}

class Fetch final {
public:
    Fetch(ShardStore& store, const PieceSupplier& supplier, const LoadProgress& progress)
        : store_(store), supplier_(supplier), progress_(progress) {}

    void complete(const std::vector<ByteRange>& ranges, const char* phase) {
        for (const ByteRange& dropped : store_.verify(ranges)) {
            room_logger("transport")
                ->warn("{}: {} bytes at {} are damaged, fetching them again",
                       store_.directory().string(), dropped.size, dropped.offset);
        }
        for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
            const std::vector<ByteRange> missing = store_.missing(ranges);
            if (missing.empty()) {
                store_.flush();
                return;
            }
            store_.require_room(total_bytes(missing));
            request(missing, phase);
        }
        throw Error(
            ErrorCode::kCorrupt,
            fmt::format("pieces of the model arrive damaged, {} times in a row", kMaxAttempts));
    }

private:
    void request(const std::vector<ByteRange>& missing, const char* phase) {
        const auto total = static_cast<double>(total_bytes(missing));
        std::uint64_t done = 0;
        for (std::size_t first = 0; first < missing.size(); first += kPiecesPerRequest) {
            const std::size_t last = std::min(first + kPiecesPerRequest, missing.size());
            const auto at = missing.begin();
            const std::vector<ByteRange> batch(at + static_cast<std::ptrdiff_t>(first),
                                               at + static_cast<std::ptrdiff_t>(last));
            supplier_.pieces(batch, [&](const Piece& piece) {
                put(piece);
                done += piece.bytes.size();
                progress_(phase, static_cast<double>(done) / total);
            });
        }
    }

    void put(const Piece& piece) {
        try {
            store_.put_piece(piece.offset, piece.bytes, piece.sha256);
        } catch (const Error& error) {
            if (error.code() != ErrorCode::kCorrupt) {
                throw;
            }
            room_logger("transport")->warn("a piece arrived damaged: {}", error.what());
        }
    }

    ShardStore& store_;
    const PieceSupplier& supplier_;
    const LoadProgress& progress_;
};

bool fingerprint_fits(const fs::path& directory, const ModelFingerprint& fingerprint) {
    const std::string xml = read_text_file(directory / kModelXmlName, kMaxModelXmlBytes);
    return fingerprint_model(xml, directory / kModelBinName) == fingerprint;
}

// The graph and the basic ranges, so that the fingerprint can be checked: a damaged .xml shows
// there, or before when it does not even parse.
bool fetch_graph(ShardStore& store, Fetch& fetch, const ModelFingerprint& fingerprint) {
    try {
        fetch.complete(basic_ranges_of(store.directory(), fingerprint.bin_bytes),
                       "fetching the graph");
        return fingerprint_fits(store.directory(), fingerprint);
    } catch (const Error& error) {
        if (error.code() != ErrorCode::kCorrupt) {
            throw;
        }
        room_logger("transport")->warn("{}: {}", store.directory().string(), error.what());
        return false;
    }
}

}  // namespace

fs::path fetch_model(const fs::path& store_root, const StageSpec& spec,
                     const PieceSupplier& supplier, const CheckBeforeWeights& check,
                     const LoadProgress& progress) {
    const auto opened = open_store(store_root, spec.fingerprint, progress);
    ShardStore& store = *opened;
    Fetch fetch(store, supplier, progress);
    if (!store.has_xml() || !fetch_graph(store, fetch, spec.fingerprint)) {
        store.put_xml(supplier.xml());
        if (!fetch_graph(store, fetch, spec.fingerprint)) {
            throw Error(ErrorCode::kCorrupt,
                        fmt::format("what the coordinator sends is not the model '{}' of its "
                                    "fingerprint",
                                    spec.model_name));
        }
    }
    check(store.directory());
    fetch.complete(needed_ranges_of(store.directory(), spec.range), "fetching weights");
    return store.directory();
}

}  // namespace shardline
