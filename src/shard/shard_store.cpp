#include "shard/shard_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/sha256.hpp"
#include "model/model_paths.hpp"
#include "shard/range_algebra.hpp"

namespace shardline {

namespace {

namespace fs = std::filesystem;

constexpr const char* kRecordsName = "pieces.txt";
constexpr const char* kLockName = "lock";
constexpr std::uint64_t kMaxRecordsBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxBinBytes = std::uint64_t{1} << 46;
constexpr std::uint64_t kFlushBytes = std::uint64_t{64} << 20;
constexpr std::size_t kSha256Digits = 64;

bool is_sha256(std::string_view text) {
    return text.size() == kSha256Digits && std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

// The name goes into a path and may come from another host.
fs::path model_directory(const fs::path& root, const ModelFingerprint& fingerprint) {
    if (!is_sha256(fingerprint.xml_sha256) || fingerprint.bin_bytes > kMaxBinBytes) {
        throw Error(ErrorCode::kInvalidArgument, "that is not the fingerprint of a model");
    }
    return root / fmt::format("{}-{}", fingerprint.xml_sha256, fingerprint.bin_bytes);
}

File open_lock(const fs::path& directory) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("cannot make {}: {}", directory.string(), error.message()));
    }
    File lock = File::open_or_create(directory / kLockName);
    if (!lock.try_lock()) {
        throw Error(ErrorCode::kUnavailable,
                    fmt::format("{} is in use by another process; give each worker a store of its "
                                "own",
                                directory.string()));
    }
    return lock;
}

std::string record_line(std::uint64_t offset, std::uint64_t size, const std::string& sha256) {
    return fmt::format("{} {} {}\n", offset, size, sha256);
}

struct ParsedRecord {
    ByteRange range;
    std::string sha256;
};

std::optional<ParsedRecord> parse_record(std::string_view line) {
    ParsedRecord record;
    const char* end = line.data() + line.size();
    const auto offset = std::from_chars(line.data(), end, record.range.offset);
    if (offset.ec != std::errc() || offset.ptr == end || *offset.ptr != ' ') {
        return std::nullopt;
    }
    const auto size = std::from_chars(offset.ptr + 1, end, record.range.size);
    if (size.ec != std::errc() || size.ptr == end || *size.ptr != ' ') {
        return std::nullopt;
    }
    record.sha256.assign(size.ptr + 1, end);
    return is_sha256(record.sha256) ? std::optional(record) : std::nullopt;
}

}  // namespace

ShardStore::ShardStore(const fs::path& root, const ModelFingerprint& fingerprint)
    : directory_(model_directory(root, fingerprint)),
      bin_bytes_(fingerprint.bin_bytes),
      lock_(open_lock(directory_)),
      bin_(File::open_or_create(directory_ / kModelBinName)) {
    load_records();
    if (bin_.size() != bin_bytes_) {
        bin_.set_size(bin_bytes_);
    }
}

ShardStore::~ShardStore() {
    try {
        flush();
    } catch (const Error& error) {
        // What is not recorded is fetched again: nothing is lost but time.
        room_logger("shard")->warn("{}", error.what());
    }
}

// A torn last line, or one that makes no sense, is a piece that is not there.
void ShardStore::load_records() {
    const fs::path file = directory_ / kRecordsName;
    if (!fs::exists(file)) {
        return;
    }
    const std::string text = read_text_file(file, kMaxRecordsBytes);
    const std::uint64_t bytes_there = bin_.size();
    bool clean = true;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        const auto record = end == std::string::npos
                                ? std::nullopt
                                : parse_record(std::string_view(text).substr(at, end - at));
        at = end == std::string::npos ? text.size() : end + 1;
        if (!record) {
            clean = false;
            continue;
        }
        try {
            check_place(record->range);
        } catch (const Error&) {
            clean = false;
            continue;
        }
        if (record->range.end() > bytes_there) {
            clean = false;  // the file was cut
            continue;
        }
        pieces_[record->range.offset] = {record->range.size, record->sha256};
    }
    if (!clean) {
        room_logger("shard")->warn("{} has lost some of its pieces", directory_.string());
        rewrite_records();
    }
}

void ShardStore::rewrite_records() {
    std::string text;
    for (const auto& [offset, record] : pieces_) {
        text += record_line(offset, record.size, record.sha256);
    }
    bin_.sync();
    write_file_atomically(directory_ / kRecordsName, text);
    unrecorded_.clear();
    unrecorded_bytes_ = 0;
}

bool ShardStore::has_xml() const {
    return fs::exists(directory_ / kModelXmlName);
}

void ShardStore::put_xml(std::string_view xml) {
    if (xml.size() > kMaxModelXmlBytes) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("a graph of {} bytes is larger than the {} allowed", xml.size(),
                                kMaxModelXmlBytes));
    }
    write_file_atomically(directory_ / kModelXmlName, xml);
}

std::vector<ByteRange> ShardStore::missing(const std::vector<ByteRange>& ranges) const {
    std::vector<ByteRange> present;
    for (const auto& [offset, record] : pieces_) {
        present.push_back({offset, record.size});
    }
    return cut_on_grid(without(ranges, present), kPieceBytes);
}

void ShardStore::check_place(const ByteRange& piece) const {
    const auto refuse = [&](const char* why) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("a piece of {} bytes at {} {}", piece.size, piece.offset, why));
    };
    if (piece.size == 0 || piece.size > bin_bytes_ || piece.offset > bin_bytes_ - piece.size) {
        refuse("is not within the weights");
    }
    if (piece.offset / kPieceBytes != (piece.end() - 1) / kPieceBytes) {
        refuse("crosses the piece grid");
    }
    const auto next = pieces_.lower_bound(piece.offset);
    if (next != pieces_.end() && next->first < piece.end() &&
        ByteRange{next->first, next->second.size} != piece) {
        refuse("overlaps another piece");
    }
    if (next != pieces_.begin()) {
        const auto previous = std::prev(next);
        if (previous->first + previous->second.size > piece.offset) {
            refuse("overlaps another piece");
        }
    }
}

void ShardStore::put_piece(std::uint64_t offset, std::span<const std::byte> bytes,
                           const std::string& sha256) {
    check_place({offset, bytes.size()});
    if (sha256_hex(bytes) != sha256) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("the piece of {} bytes at {} was damaged on its way", bytes.size(),
                                offset));
    }
    bin_.write_at(offset, bytes);
    pieces_[offset] = {bytes.size(), sha256};
    unrecorded_ += record_line(offset, bytes.size(), sha256);
    unrecorded_bytes_ += bytes.size();
    if (unrecorded_bytes_ >= kFlushBytes) {
        flush();
    }
}

void ShardStore::flush() {
    if (unrecorded_.empty()) {
        return;
    }
    bin_.sync();
    File records = File::open_or_create(directory_ / kRecordsName);
    records.write_at(records.size(), std::as_bytes(std::span(unrecorded_)));
    records.sync();
    sync_directory(directory_);
    unrecorded_.clear();
    unrecorded_bytes_ = 0;
}

bool ShardStore::intact(const ByteRange& piece, const std::string& sha256) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(piece.size));
    try {
        bin_.read_at(piece.offset, bytes);
    } catch (const Error&) {
        return false;  // unreadable sectors, or a file cut short meanwhile
    }
    return sha256_hex(bytes) == sha256;
}

std::vector<ByteRange> ShardStore::verify(const std::vector<ByteRange>& ranges) {
    std::vector<ByteRange> dropped;
    auto range = ranges.begin();
    for (auto piece = pieces_.begin(); piece != pieces_.end();) {
        const ByteRange place{piece->first, piece->second.size};
        while (range != ranges.end() && range->end() <= place.offset) {
            ++range;
        }
        const bool asked = range != ranges.end() && range->offset < place.end();
        if (asked && !intact(place, piece->second.sha256)) {
            dropped.push_back(place);
            piece = pieces_.erase(piece);
        } else {
            ++piece;
        }
    }
    if (!dropped.empty()) {
        // Unrecorded first: after a crash in between the bytes are fetched again, never trusted.
        rewrite_records();
        bin_.set_size(bin_bytes_);
        for (const ByteRange& place : dropped) {
            bin_.punch_hole(place.offset, place.size);
        }
    }
    return dropped;
}

std::vector<ByteRange> ShardStore::verify() {
    return verify({{0, bin_bytes_}});
}

void ShardStore::require_room(std::uint64_t bytes) const {
    std::error_code error;
    const fs::space_info space = fs::space(directory_, error);
    if (!error && space.available < bytes) {
        throw Error(ErrorCode::kResourceExhausted,
                    fmt::format("{} has room for {} MB, the weights to fetch take {} MB",
                                directory_.string(), space.available >> 20U, bytes >> 20U));
    }
}

std::uint64_t ShardStore::present_bytes() const {
    std::uint64_t total = 0;
    for (const auto& [offset, record] : pieces_) {
        total += record.size;
    }
    return total;
}

}  // namespace shardline
