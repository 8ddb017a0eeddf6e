// Weights on their way to a worker: from a supplier in this process, and over the load stream.
#include "transport/model_fetch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "base/file.hpp"
#include "model/model_paths.hpp"
#include "shard/part_ranges.hpp"
#include "shard/range_algebra.hpp"
#include "shard/shard_store.hpp"
#include "unit/transport/chain_harness.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string read_file(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void flip_byte(const fs::path& file, std::uint64_t offset) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(static_cast<char>(~byte));
}

// A real model, with a tail behind its weights so that its file is larger than one piece and no
// stage needs all of it.
class ModelFetchTest : public ::testing::Test {
protected:
    static constexpr std::uint64_t kBinBytes = 6 * kPieceBytes;

    void SetUp() override {
        const char* tiny = std::getenv("SHARDLINE_TINY_MODELS");
        if (tiny == nullptr || !fs::exists(fs::path(tiny) / "llama")) {
            GTEST_SKIP() << "SHARDLINE_TINY_MODELS names no directory of tiny models";
        }
        const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
        root_ = fs::path(::testing::TempDir()) / (std::string("model-fetch-") + test->name());
        fs::remove_all(root_);
        fs::create_directories(model_directory());
        for (const char* name : {kModelXmlName, kModelBinName}) {
            fs::copy_file(fs::path(tiny) / "llama" / name, model_directory() / name);
        }
        fs::resize_file(model_directory() / kModelBinName, kBinBytes);
        source_ = std::make_unique<PieceSource>(model_directory());
        spec_.model_name = "llama";
        spec_.fingerprint = source_->fingerprint();
        spec_.range.layers = {0, 2};
        spec_.num_blocks = kTestLimits.num_blocks;
        spec_.max_rows = kTestLimits.max_rows;
        spec_.max_context = kTestLimits.max_context;
    }
    void TearDown() override { fs::remove_all(root_); }

    fs::path model_directory() const { return root_ / "model"; }
    fs::path store_root() const { return root_ / "store"; }
    fs::path stored_file(const char* name) const {
        return store_root() / fs::directory_iterator(store_root())->path().filename() / name;
    }

    // Counts what is asked for and may damage what is given.
    PieceSupplier supplier() {
        PieceSupplier made;
        made.xml = [this] {
            ++xml_requests_;
            return xml_override_.empty() ? source_->xml() : xml_override_;
        };
        made.pieces = [this](const std::vector<ByteRange>& ranges,
                             const std::function<void(const Piece&)>& take) {
            EXPECT_LE(ranges.size(), kPiecesPerRequest);
            for (const ByteRange& range : ranges) {
                Piece piece = source_->read(range);
                sent_.push_back(range);
                if (damage_ && damage_(sent_.size())) {
                    piece.bytes.front() = ~piece.bytes.front();
                }
                take(piece);
            }
        };
        return made;
    }

    fs::path fetch() {
        sent_.clear();
        xml_requests_ = 0;
        return fetch_model(
            store_root(), spec_, supplier(), [](const fs::path&) {}, [](const char*, double) {});
    }

    void expect_complete(const fs::path& directory) const {
        const std::string original = read_file(model_directory() / kModelBinName);
        const std::string stored = read_file(directory / kModelBinName);
        ASSERT_EQ(stored.size(), original.size());
        for (const ByteRange& range : needed_ranges_of(directory, spec_.range)) {
            ASSERT_EQ(stored.compare(range.offset, range.size, original, range.offset, range.size),
                      0)
                << range.offset;
        }
    }

    fs::path root_;
    std::unique_ptr<PieceSource> source_;
    StageSpec spec_;
    std::vector<ByteRange> sent_;
    int xml_requests_ = 0;
    std::string xml_override_;
    std::function<bool(std::size_t)> damage_;  // of the n-th piece that is sent
};

TEST_F(ModelFetchTest, FetchesWhatTheStageNeedsAndNothingTwice) {
    const fs::path directory = fetch();
    expect_complete(directory);
    EXPECT_EQ(xml_requests_, 1);
    const std::uint64_t first = total_bytes(sent_);
    EXPECT_LT(first, kBinBytes);
    fetch();
    EXPECT_THAT(sent_, IsEmpty()) << "a restart resends nothing";
    EXPECT_EQ(xml_requests_, 0);
    spec_.range.layers = {1, 3};
    expect_complete(fetch());
    EXPECT_THAT(sent_, Not(IsEmpty()));
    EXPECT_LT(total_bytes(sent_), first) << "what both stages need stays";
}

TEST_F(ModelFetchTest, FlippedByteIsFetchedAgainAlone) {
    const fs::path directory = fetch();
    const ByteRange victim = needed_ranges_of(directory, spec_.range).front();
    flip_byte(directory / kModelBinName, victim.offset);
    fetch();
    ASSERT_EQ(sent_.size(), 1U);
    EXPECT_LE(sent_.front().offset, victim.offset);
    EXPECT_GT(sent_.front().end(), victim.offset);
    expect_complete(directory);
}

TEST_F(ModelFetchTest, TruncatedFileIsCompleted) {
    const fs::path directory = fetch();
    const std::size_t all = sent_.size();
    fs::resize_file(directory / kModelBinName, kBinBytes - kPieceBytes);
    fetch();
    EXPECT_THAT(sent_, Not(IsEmpty()));
    EXPECT_LT(sent_.size(), all);
    for (const ByteRange& range : sent_) {
        EXPECT_GE(range.end(), kBinBytes - kPieceBytes);
    }
    expect_complete(directory);
}

TEST_F(ModelFetchTest, DamagedGraphIsFetchedAgain) {
    const fs::path directory = fetch();
    const fs::path xml = directory / kModelXmlName;
    flip_byte(xml, fs::file_size(xml) / 2);
    fetch();
    EXPECT_EQ(xml_requests_, 1);
    EXPECT_EQ(read_file(xml), source_->xml());
    fs::resize_file(xml, 100);
    fetch();
    EXPECT_EQ(xml_requests_, 1);
    expect_complete(directory);
}

TEST_F(ModelFetchTest, PieceDamagedOnTheWayIsAskedForAgain) {
    damage_ = [](std::size_t n) { return n == 3; };
    const fs::path directory = fetch();
    expect_complete(directory);
    EXPECT_EQ(std::count(sent_.begin(), sent_.end(), sent_[2]), 2);
}

TEST_F(ModelFetchTest, SourceThatIsAlwaysDamagedIsGivenUp) {
    damage_ = [](std::size_t) { return true; };
    try {
        fetch();
        FAIL() << "nothing sound ever came";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    }
}

TEST_F(ModelFetchTest, TwoWorkersOfOneHostShareAStore) {
    auto other = std::make_unique<ShardStore>(store_root(), spec_.fingerprint);
    std::atomic<bool> waited = false;
    std::jthread leaves([&] {
        while (!waited) {
            std::this_thread::sleep_for(10ms);
        }
        other.reset();
    });
    const fs::path directory = fetch_model(
        store_root(), spec_, supplier(), [](const fs::path&) {},
        [&](const char* phase, double) {
            waited = waited || std::string(phase).starts_with("waiting");
        });
    EXPECT_TRUE(waited);
    expect_complete(directory);
}

TEST_F(ModelFetchTest, GraphOfAnotherModelIsRefused) {
    xml_override_ = source_->xml() + "<!-- changed -->";
    try {
        fetch();
        FAIL() << "the fingerprint differs";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
        EXPECT_THAT(error.what(), HasSubstr("'llama'"));
    }
}

TEST_F(ModelFetchTest, StageThatDoesNotFitIsRefusedBeforeItsWeightsTravel) {
    spec_.range.layers = {0, 4};
    const auto check = [](const fs::path& directory) {
        EXPECT_TRUE(fs::exists(directory / kModelXmlName));
        throw Error(ErrorCode::kResourceExhausted, "too large");
    };
    EXPECT_THROW(fetch_model(store_root(), spec_, supplier(), check, [](const char*, double) {}),
                 Error);
    const std::vector<ByteRange> basic =
        basic_ranges_of(stored_file(kModelXmlName).parent_path(), kBinBytes);
    EXPECT_LE(total_bytes(sent_), total_bytes(basic));
}

// The same over the wire: a worker with an empty store, a coordinator with the model.
class FetchOverTheWire : public ModelFetchTest {
protected:
    void SetUp() override {
        ModelFetchTest::SetUp();
        if (!IsSkipped()) {
            fleet_ = std::make_unique<TestFleet>(0);
            start();
        }
    }

    void start(StageSizer sizer = {}, std::uint64_t memory_bytes = 0) {
        worker_.reset();
        WorkerOptions options;
        options.name = "attic";
        options.listen = "127.0.0.1:0";
        options.credentials = make_node_credentials(fleet_->fleet(), "attic", 2);
        options.store_directory = store_root();
        options.memory_bytes = memory_bytes;
        worker_ = std::make_unique<WorkerServer>(
            options,
            [this](const StageSpec& spec, const fs::path& directory, const LoadProgress&) {
                EXPECT_EQ(spec.range, spec_.range);
                expect_complete(directory);
                ++loads_;
                return make_test_executor(0);
            },
            std::move(sizer));
    }

    std::set<std::string> load(const fs::path& from, std::uint64_t epoch) {
        std::set<std::string> phases;
        ChainLog log;
        GrpcChain chain(fleet_->credentials(),
                        {{"127.0.0.1:" + std::to_string(worker_->port()), spec_}}, Epoch{epoch},
                        fleet_->chain_options(), log.callbacks());
        chain.load(from,
                   [&](std::size_t, const std::string& phase, double) { phases.insert(phase); });
        EXPECT_TRUE(chain.send(make_step(Epoch{epoch}, 1)));
        EXPECT_TRUE(log.wait_results(1, 10s));
        return phases;
    }

    std::unique_ptr<TestFleet> fleet_;
    std::unique_ptr<WorkerServer> worker_;
    int loads_ = 0;
};

TEST_F(FetchOverTheWire, WorkerFetchesKeepsAndRepairs) {
    EXPECT_THAT(load(model_directory(), 1), Not(IsEmpty()));
    EXPECT_EQ(loads_, 1);

    start();
    EXPECT_THAT(load({}, 2), IsEmpty()) << "a restarted worker has all, even without a source";
    EXPECT_EQ(loads_, 2);

    start();
    flip_byte(stored_file(kModelBinName),
              needed_ranges_of(model_directory(), spec_.range).front().offset);
    EXPECT_THAT(load(model_directory(), 3), Not(IsEmpty()));
    EXPECT_EQ(loads_, 3);
}

TEST_F(FetchOverTheWire, CoordinatorWithoutTheModelSaysSo) {
    try {
        load({}, 1);
        FAIL() << "nobody has the model";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNotFound);
        EXPECT_THAT(error.what(), HasSubstr("attic"));
    }
    fs::resize_file(model_directory() / kModelBinName, kBinBytes - 1);
    try {
        load(model_directory(), 2);
        FAIL() << "another model is there";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("another model"));
    }
}

TEST_F(FetchOverTheWire, ShortageOfMemoryIsRefusedNamingNodeAndBytes) {
    start(
        [](const fs::path&, const StageSpec&) {
            StageFootprint footprint;
            footprint.weights_bytes = 3'000'000;
            return footprint;
        },
        2'000'000);
    try {
        load(model_directory(), 1);
        FAIL() << "it does not fit";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
        EXPECT_THAT(error.what(), HasSubstr("attic"));
        EXPECT_THAT(error.what(), HasSubstr("3000000 bytes"));
        EXPECT_THAT(error.what(), HasSubstr("2000000 are allowed"));
    }
    EXPECT_EQ(loads_, 0);
}

}  // namespace
}  // namespace shardline
