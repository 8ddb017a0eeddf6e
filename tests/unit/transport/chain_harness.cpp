#include "unit/transport/chain_harness.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "base/sha256.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

class TestExecutor final : public StageExecutor {
public:
    TestExecutor(std::uint32_t stage, BeforeStep before)
        : stage_(stage), before_(std::move(before)) {}

    Activations run(const StepPlan& plan, Activations activations) override {
        if (before_) {
            before_(stage_, plan);
        }
        for (Tensor& tensor : activations) {
            std::vector<float> values(tensor.bytes.size() / sizeof(float));
            std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
            for (float& value : values) {
                value = 3.0F * value + static_cast<float>(stage_ + 1);
            }
            std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
        }
        return activations;
    }

    StepLimits limits() const override { return kTestLimits; }

private:
    const std::uint32_t stage_;
    const BeforeStep before_;
};

}  // namespace

std::unique_ptr<StageExecutor> make_test_executor(std::uint32_t stage, BeforeStep before) {
    return std::make_unique<TestExecutor>(stage, std::move(before));
}

float expected_value(float input, std::uint32_t num_stages) {
    for (std::uint32_t stage = 0; stage < num_stages; ++stage) {
        input = 3.0F * input + static_cast<float>(stage + 1);
    }
    return input;
}

float input_value(std::uint64_t id, std::size_t index) {
    return static_cast<float>(id % 97) + static_cast<float>(index) / 256.0F;
}

Step make_step(Epoch epoch, std::uint64_t id, std::uint32_t rows) {
    Step step;
    step.plan.epoch = epoch;
    step.plan.step = StepId{id};
    for (std::uint32_t row = 0; row < rows; ++row) {
        step.plan.spans.push_back({.sequence = SequenceId{row},
                                   .past_len = 0,
                                   .num_tokens = 1,
                                   .block_table = {BlockId{row % kTestLimits.num_blocks}}});
        step.plan.kept_rows.push_back(row);
    }
    std::vector<float> values(std::size_t{rows} * kTestHidden);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = input_value(id, i);
    }
    Tensor tensor;
    tensor.name = "boundary.0.0";
    tensor.shape = {rows, kTestHidden};
    tensor.bytes.assign(reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float));
    step.activations.push_back(std::move(tensor));
    return step;
}

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
    std::ofstream(model_directory_ / "openvino_model.xml") << "<net/>";
    std::ofstream(model_directory_ / "openvino_model.bin") << "weights";
    fingerprint_ = {sha256_of_file(model_directory_ / "openvino_model.xml"), 7};
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
