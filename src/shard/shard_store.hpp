#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "model/byte_range.hpp"
#include "shard/piece_source.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// What a host holds of one model: a directory with the .xml and a copy of the .bin that has its
// full size but of which only some pieces are there, the rest being holes.
//
//     ROOT/<fingerprint>/openvino_model.xml
//                        openvino_model.bin    ....[####|##]......[##|#####|#]...
//                        pieces.txt            offset size sha256, a line per piece
//
// A piece counts as present over a restart only when it was recorded after its bytes were on disk;
// what a crash leaves beyond that is a hole like any other. Once all needed pieces are there,
// directory() opens as a model directory. Holds at most one piece in memory.
// Used from one thread; a lock keeps other processes out for as long as the object lives.
class ShardStore final {
public:
    // Makes the directory when it is not there. Throws Error(kUnavailable) when another process
    // has it open, Error(kInvalidArgument) for a fingerprint that is none.
    ShardStore(const std::filesystem::path& root, const ModelFingerprint& fingerprint);
    ~ShardStore();
    ShardStore(const ShardStore&) = delete;
    ShardStore& operator=(const ShardStore&) = delete;

    const std::filesystem::path& directory() const { return directory_; }

    bool has_xml() const;
    void put_xml(std::string_view xml);

    // What of `ranges` (ascending, disjoint) is not there yet, cut into pieces to ask for.
    std::vector<ByteRange> missing(const std::vector<ByteRange>& ranges) const;

    // Takes one piece. Throws Error(kCorrupt) when the bytes do not have the hash, and
    // Error(kInvalidArgument) when they lie beyond the .bin, cross the piece grid or overlap a
    // part of another piece. Recorded at the latest by flush(), in groups, as every record waits
    // for the disk.
    void put_piece(std::uint64_t offset, std::span<const std::byte> bytes,
                   const std::string& sha256);

    // Returns when all pieces so far are on disk and recorded.
    void flush();

    // Reads the pieces that touch `ranges` again and drops those whose bytes no longer have their
    // hash; returns what was dropped. Call before use: a disk may have changed what it holds.
    std::vector<ByteRange> verify(const std::vector<ByteRange>& ranges);
    std::vector<ByteRange> verify();  // all pieces

    // Throws Error(kResourceExhausted) naming both numbers when the disk has no room for `bytes`.
    void require_room(std::uint64_t bytes) const;

    std::uint64_t present_bytes() const;

private:
    struct Record {
        std::uint64_t size = 0;
        std::string sha256;
    };

    void load_records();
    void rewrite_records();
    void check_place(const ByteRange& piece) const;
    bool intact(const ByteRange& piece, const std::string& sha256) const;

    std::filesystem::path directory_;
    std::uint64_t bin_bytes_ = 0;
    File lock_;
    File bin_;
    std::map<std::uint64_t, Record> pieces_;  // by offset, disjoint
    std::string unrecorded_;                  // lines of pieces that wait for flush()
    std::uint64_t unrecorded_bytes_ = 0;
};

}  // namespace shardline
