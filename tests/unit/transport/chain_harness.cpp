#include "unit/transport/chain_harness.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "model/fingerprint.hpp"
#include "model/model_paths.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

}  // namespace

ChainCallbacks ChainLog::callbacks() {
    ChainCallbacks callbacks;
    callbacks.on_result = [this](StepResult result) {
        std::lock_guard lock(mutex_);
        results_.push_back(std::move(result));
        changed_.notify_all();
    };
    callbacks.on_down = [this](std::string reason) {
        std::lock_guard lock(mutex_);
        downs_.push_back(std::move(reason));
        changed_.notify_all();
    };
    return callbacks;
}

bool ChainLog::wait_results(std::size_t count, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return results_.size() >= count; });
}

bool ChainLog::wait_down(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return !downs_.empty(); });
}

std::vector<StepResult> ChainLog::results() const {
    std::lock_guard lock(mutex_);
    return results_;
}

std::string ChainLog::down_reason() const {
    std::lock_guard lock(mutex_);
    return downs_.empty() ? std::string() : downs_.front();
}

std::size_t ChainLog::num_downs() const {
    std::lock_guard lock(mutex_);
    return downs_.size();
}

TestFleet::TestFleet(std::uint32_t num_workers, BeforeStep before)
    : fleet_(make_fleet(2)),
      credentials_(make_node_credentials(fleet_, "coordinator", 2)),
      before_(std::move(before)),
      ports_(num_workers, 0) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name =
        fmt::format("transport-{}-{}-{}", own_pid(), test->test_suite_name(), test->name());
    for (char& letter : name) {
        letter = letter == '/' ? '-' : letter;
    }
    model_directory_ = fs::path(::testing::TempDir()) / name;
    fs::create_directories(model_directory_);
    std::ofstream(model_directory_ / kModelXmlName) << "<net/>";
    std::ofstream(model_directory_ / kModelBinName) << "weights";
    fingerprint_ = fingerprint_model("<net/>", model_directory_ / kModelBinName);
    chain_options_.coordinator = make_coordinator_identity();
    workers_.resize(num_workers);
    for (std::uint32_t i = 0; i < num_workers; ++i) {
        start_worker(i);
    }
}

TestFleet::~TestFleet() {
    workers_.clear();
    fs::remove_all(model_directory_);
}

WorkerOptions TestFleet::worker_options(std::uint32_t index) const {
    WorkerOptions options;
    options.name = fmt::format("node{}", index);
    options.listen = fmt::format("127.0.0.1:{}", ports_[index]);
    options.credentials = make_node_credentials(fleet_, options.name, 2);
    options.model_directory = model_directory_;
    options.devices = {"CPU"};
    return options;
}

void TestFleet::start_worker(std::uint32_t index) {
    workers_[index] = std::make_unique<WorkerServer>(
        worker_options(index),
        [this](const StageSpec& spec, const fs::path&, const LoadProgress& progress) {
            progress("compiling", 0.5);
            progress("compiling", 1.0);
            return make_test_executor(spec.range.layers.first, before_);
        });
    ports_[index] = workers_[index]->port();
}

std::string TestFleet::address(std::uint32_t index) const {
    return fmt::format("127.0.0.1:{}", ports_[index]);
}

StageSpec TestFleet::spec(std::uint32_t index) const {
    StageSpec spec;
    spec.model_name = "test";
    spec.fingerprint = fingerprint_;
    spec.range.layers = {index, index + 1};
    spec.num_blocks = kTestLimits.num_blocks;
    spec.max_rows = kTestLimits.max_rows;
    spec.max_context = kTestLimits.max_context;
    return spec;
}

std::vector<ChainHop> TestFleet::hops() const {
    std::vector<ChainHop> hops;
    for (std::uint32_t i = 0; i < workers_.size(); ++i) {
        hops.push_back({address(i), spec(i)});
    }
    return hops;
}

std::unique_ptr<GrpcChain> TestFleet::open(Epoch epoch, ChainLog& log) const {
    auto chain =
        std::make_unique<GrpcChain>(credentials_, hops(), epoch, chain_options_, log.callbacks());
    chain->load({}, {});
    return chain;
}

}  // namespace shardline
