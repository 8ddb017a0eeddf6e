#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "security/credentials.hpp"
#include "transport/chain.hpp"
#include "transport/grpc_chain.hpp"
#include "transport/worker_server.hpp"
#include "unit/transport/test_executor.hpp"

namespace shardline {

// Collects what a chain says; waits with a limit, so that a test fails instead of hanging.
class ChainLog final {
public:
    ChainCallbacks callbacks();

    // False when they did not come in time.
    bool wait_results(std::size_t count, std::chrono::milliseconds timeout);
    bool wait_down(std::chrono::milliseconds timeout);

    std::vector<StepResult> results() const;
    std::string down_reason() const;
    std::size_t num_downs() const;

private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<StepResult> results_;
    std::vector<std::string> downs_;
};

// Workers in this process, over real sockets and TLS, with a model directory they all hold.
class TestFleet final {
public:
    explicit TestFleet(std::uint32_t num_workers, BeforeStep before = {});
    ~TestFleet();

    WorkerOptions worker_options(std::uint32_t index) const;
    std::string address(std::uint32_t index) const;
    std::vector<ChainHop> hops() const;
    StageSpec spec(std::uint32_t index) const;
    WorkerServer& worker(std::uint32_t index) { return *workers_[index]; }
    void stop_worker(std::uint32_t index) { workers_[index].reset(); }
    void start_worker(std::uint32_t index);  // on the port it had
    const std::filesystem::path& model_directory() const { return model_directory_; }
    const Fleet& fleet() const { return fleet_; }
    const Credentials& credentials() const { return credentials_; }

    // Options with short timeouts and one identity.
    ChainOptions chain_options() const { return chain_options_; }
    std::unique_ptr<GrpcChain> open(Epoch epoch, ChainLog& log) const;

private:
    Fleet fleet_;
    Credentials credentials_;
    BeforeStep before_;
    ChainOptions chain_options_;
    std::filesystem::path model_directory_;
    ModelFingerprint fingerprint_;
    std::vector<std::unique_ptr<WorkerServer>> workers_;
    std::vector<int> ports_;
};

}  // namespace shardline
