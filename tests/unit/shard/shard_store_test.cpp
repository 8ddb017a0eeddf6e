#include "shard/shard_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <random>

#include "base/error.hpp"
#include "base/sha256.hpp"
#include "model/model_paths.hpp"
#include "shard/range_algebra.hpp"
#include "unit/model/test_models.hpp"
#include "unit/shard/print_range.hpp"

namespace shardline {

namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Ranges = std::vector<ByteRange>;

constexpr std::uint64_t kBinBytes = 8 * kPieceBytes + 12345;
// Crosses grid lines, starts and ends anywhere, includes the last byte.
const Ranges kWanted = {
    {777, 2 * kPieceBytes}, {4 * kPieceBytes, kPieceBytes}, {kBinBytes - 100, 100}};

std::vector<std::byte> random_bytes(std::size_t size) {
    std::mt19937 random(11);
    std::vector<std::byte> bytes(size);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
    return bytes;
}

class ShardStoreTest : public testing::Test {
protected:
    ShardStoreTest() : content_(random_bytes(kBinBytes)) {
        fs::create_directories(model_);
        std::ofstream(model_ / kModelXmlName) << "<net/>";
        std::ofstream(model_ / kModelBinName, std::ios::binary)
            .write(reinterpret_cast<const char*>(content_.data()),
                   static_cast<std::streamsize>(content_.size()));
        source_.emplace(model_);
    }

    ShardStore open() { return {root_, source_->fingerprint()}; }

    // Fetches what is missing of `ranges`; how many bytes that were.
    std::uint64_t fetch(ShardStore& store, const Ranges& ranges) {
        std::uint64_t bytes = 0;
        for (const ByteRange& range : store.missing(ranges)) {
            const Piece piece = source_->read(range);
            store.put_piece(piece.offset, piece.bytes, piece.sha256);
            bytes += piece.bytes.size();
        }
        return bytes;
    }

    bool holds(const ShardStore& store, const ByteRange& range) const {
        std::vector<std::byte> bytes(range.size);
        File::open_read(store.directory() / kModelBinName).read_at(range.offset, bytes);
        return std::equal(bytes.begin(), bytes.end(),
                          content_.begin() + static_cast<std::ptrdiff_t>(range.offset));
    }

    static void flip_byte(const fs::path& file, std::uint64_t offset) {
        File bin = File::open_or_create(file);
        std::byte byte{};
        bin.read_at(offset, {&byte, 1});
        byte ^= std::byte{1};
        bin.write_at(offset, {&byte, 1});
    }

    template <typename Action>
    static ErrorCode code_of(Action action) {
        try {
            action();
        } catch (const Error& error) {
            return error.code();
        }
        ADD_FAILURE() << "nothing was thrown";
        return ErrorCode::kInternal;
    }

    ScratchDirectory scratch_;
    fs::path model_ = scratch_.path() / "model";
    fs::path root_ = scratch_.path() / "store";
    std::vector<std::byte> content_;
    std::optional<PieceSource> source_;
};

TEST_F(ShardStoreTest, HoldsTheWantedRangesAndHolesElsewhere) {
    ShardStore store = open();
    EXPECT_EQ(total_bytes(store.missing(kWanted)), total_bytes(kWanted));
    EXPECT_EQ(fetch(store, kWanted), total_bytes(kWanted));
    EXPECT_THAT(store.missing(kWanted), IsEmpty());
    EXPECT_EQ(store.present_bytes(), total_bytes(kWanted));
    for (const ByteRange& range : kWanted) {
        EXPECT_TRUE(holds(store, range));
    }
    const File bin = File::open_read(store.directory() / kModelBinName);
    EXPECT_EQ(bin.size(), kBinBytes);
    EXPECT_LT(bin.allocated_bytes(), total_bytes(kWanted) + 16 * 4096);
}

TEST_F(ShardStoreTest, ALaterPlacementFetchesOnlyTheRest) {
    ShardStore store = open();
    fetch(store, kWanted);
    const Ranges more = {{0, 3 * kPieceBytes}, {4 * kPieceBytes + 5, 10}};
    EXPECT_EQ(fetch(store, more), 3 * kPieceBytes - 2 * kPieceBytes);
    EXPECT_TRUE(holds(store, more.front()));
    EXPECT_THAT(store.verify(), IsEmpty());
}

TEST_F(ShardStoreTest, IsThereAfterARestart) {
    {
        ShardStore store = open();
        store.put_xml(source_->xml());
        fetch(store, kWanted);
    }
    ShardStore store = open();
    EXPECT_TRUE(store.has_xml());
    EXPECT_THAT(store.missing(kWanted), IsEmpty());
    EXPECT_THAT(store.verify(kWanted), IsEmpty());
}

// What a power cut leaves: the files as they are between two flushes.
TEST_F(ShardStoreTest, UnrecordedPiecesAreFetchedAgain) {
    const fs::path after_crash = scratch_.path() / "after-crash";
    const ByteRange late = {6 * kPieceBytes, 1000};
    {
        ShardStore store = open();
        fetch(store, kWanted);
        store.flush();
        fetch(store, {late});
        fs::copy(root_, after_crash, fs::copy_options::recursive);
    }
    ShardStore store(after_crash, source_->fingerprint());
    EXPECT_THAT(store.missing(kWanted), IsEmpty());
    EXPECT_THAT(store.missing({late}), ElementsAre(late));
}

TEST_F(ShardStoreTest, ATornOrSenselessRecordIsAPieceThatIsNotThere) {
    fs::path records;
    {
        ShardStore store = open();
        fetch(store, kWanted);
        records = store.directory() / "pieces.txt";
    }
    const std::string hash(64, 'a');
    const auto append = [&](const std::string& text) {
        std::ofstream(records, std::ios::app | std::ios::binary) << text;
    };
    append("7340032 10 " + hash.substr(0, 20));
    EXPECT_THAT(open().missing({{7340032, 10}}), ElementsAre(ByteRange{7340032, 10}));
    append("garbage\n\n-1 5 " + hash + "\n99999999999 5 " + hash + "\n7340032 0 " + hash +
           "\n7340032 18446744073709551615 " + hash + "\n");
    ShardStore store = open();
    EXPECT_THAT(store.missing(kWanted), IsEmpty());
    EXPECT_EQ(store.present_bytes(), total_bytes(kWanted));
}

TEST_F(ShardStoreTest, AFlippedByteDropsJustThatPiece) {
    ShardStore store = open();
    fetch(store, kWanted);
    flip_byte(store.directory() / kModelBinName, kPieceBytes + 17);
    const ByteRange bad = {kPieceBytes, kPieceBytes};
    EXPECT_THAT(store.verify({{4 * kPieceBytes, kPieceBytes}}), IsEmpty());
    EXPECT_THAT(store.verify(kWanted), ElementsAre(bad));
    EXPECT_THAT(store.missing(kWanted), ElementsAre(bad));
    EXPECT_EQ(fetch(store, kWanted), bad.size);
    EXPECT_THAT(store.verify(), IsEmpty());
    EXPECT_TRUE(holds(store, bad));
}

TEST_F(ShardStoreTest, ADropLastsOverARestart) {
    const ByteRange bad = {kPieceBytes, kPieceBytes};
    {
        ShardStore store = open();
        fetch(store, kWanted);
        flip_byte(store.directory() / kModelBinName, kPieceBytes + 17);
        store.verify();
    }
    EXPECT_THAT(open().missing(kWanted), ElementsAre(bad));
}

TEST_F(ShardStoreTest, TruncationDropsWhatWasCutOff) {
    fs::path bin;
    {
        ShardStore store = open();
        fetch(store, kWanted);
        bin = store.directory() / kModelBinName;
    }
    fs::resize_file(bin, 4 * kPieceBytes + 10);
    ShardStore store = open();
    EXPECT_EQ(fs::file_size(bin), kBinBytes);
    EXPECT_THAT(store.missing(kWanted),
                ElementsAre(ByteRange{4 * kPieceBytes, kPieceBytes}, kWanted.back()));

    fetch(store, kWanted);
    fs::resize_file(bin, kPieceBytes);  // while it is open
    EXPECT_THAT(store.verify(),
                ElementsAre(ByteRange{kPieceBytes, kPieceBytes}, ByteRange{2 * kPieceBytes, 777},
                            ByteRange{4 * kPieceBytes, kPieceBytes}, kWanted.back()));
    EXPECT_EQ(fs::file_size(bin), kBinBytes);
}

TEST_F(ShardStoreTest, DamagedPiecesAreRefused) {
    ShardStore store = open();
    Piece piece = source_->read({0, 1000});
    piece.bytes[500] ^= std::byte{1};
    EXPECT_EQ(code_of([&] { store.put_piece(0, piece.bytes, piece.sha256); }), ErrorCode::kCorrupt);
    EXPECT_EQ(code_of([&] { store.put_piece(0, piece.bytes, "no hash"); }), ErrorCode::kCorrupt);
    EXPECT_THAT(store.missing({{0, 1000}}), ElementsAre(ByteRange{0, 1000}));
}

TEST_F(ShardStoreTest, PiecesInWrongPlacesAreRefused) {
    ShardStore store = open();
    const std::vector<std::byte> bytes(2 * kPieceBytes);
    const auto put = [&](std::uint64_t offset, std::uint64_t size) {
        return code_of([&] {
            const auto piece = std::span(bytes).first(size);
            store.put_piece(offset, piece, sha256_hex(piece));
        });
    };
    EXPECT_EQ(put(0, 0), ErrorCode::kInvalidArgument);
    EXPECT_EQ(put(kBinBytes - 5, 6), ErrorCode::kInvalidArgument);
    EXPECT_EQ(put(~std::uint64_t{0}, 6), ErrorCode::kInvalidArgument);
    EXPECT_EQ(put(kPieceBytes - 1, 2), ErrorCode::kInvalidArgument);
    EXPECT_EQ(put(0, kPieceBytes + 1), ErrorCode::kInvalidArgument);
    const Piece piece = source_->read({100, 100});
    store.put_piece(piece.offset, piece.bytes, piece.sha256);
    store.put_piece(piece.offset, piece.bytes, piece.sha256);  // again: no harm
    EXPECT_EQ(put(150, 10), ErrorCode::kInvalidArgument);
    EXPECT_EQ(put(50, 100), ErrorCode::kInvalidArgument);
    EXPECT_EQ(put(100, 99), ErrorCode::kInvalidArgument);
}

TEST_F(ShardStoreTest, OneProcessAtATime) {
    ShardStore store = open();
    EXPECT_EQ(code_of([&] { open(); }), ErrorCode::kUnavailable);
}

TEST_F(ShardStoreTest, AFingerprintIsNoWayOut) {
    for (const std::string& hash : {std::string(), std::string("../../../etc"),
                                    "../" + std::string(61, 'a'), std::string(64, 'A')}) {
        EXPECT_EQ(code_of([&] {
                      ShardStore(root_, {hash, kBinBytes});
                  }),
                  ErrorCode::kInvalidArgument);
    }
    EXPECT_EQ(code_of([&] {
                  ShardStore(root_, {std::string(64, 'a'), ~std::uint64_t{0}});
              }),
              ErrorCode::kInvalidArgument);
    EXPECT_FALSE(fs::exists(root_));
}

TEST_F(ShardStoreTest, SaysWhenTheDiskIsTooSmall) {
    ShardStore store = open();
    store.require_room(1);
    try {
        store.require_room(~std::uint64_t{0});
        ADD_FAILURE() << "a disk of that size?";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
        EXPECT_THAT(error.what(), HasSubstr("room for"));
    }
}

TEST_F(ShardStoreTest, TheSourceRefusesWhatItDoesNotHave) {
    const auto read = [&](std::uint64_t offset, std::uint64_t size) {
        return code_of([&] { source_->read({offset, size}); });
    };
    EXPECT_EQ(read(0, 0), ErrorCode::kInvalidArgument);
    EXPECT_EQ(read(0, kPieceBytes + 1), ErrorCode::kInvalidArgument);
    EXPECT_EQ(read(kBinBytes, 1), ErrorCode::kInvalidArgument);
    EXPECT_EQ(read(~std::uint64_t{0}, 2), ErrorCode::kInvalidArgument);
}

// Two fine-tunes: same graph, same size, other weights.
TEST_F(ShardStoreTest, OtherWeightsAreAnotherModel) {
    flip_byte(model_ / kModelBinName, 0);
    EXPECT_NE(PieceSource(model_).fingerprint(), source_->fingerprint());
}

}  // namespace
}  // namespace shardline
