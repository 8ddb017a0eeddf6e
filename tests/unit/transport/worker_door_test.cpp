// Both sides of the door: what a client is told about ports where no worker of ours listens, and
// what a worker does with visitors that do not belong to its fleet.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "fleet.grpc.pb.h"
#include "stage.grpc.pb.h"
#include "transport/grpc_connection.hpp"
#include "transport/protocol.hpp"
#include "transport/worker_client.hpp"
#include "unit/transport/chain_harness.hpp"
#include "unit/transport/raw_socket.hpp"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Refusal {
    ErrorCode code{};
    std::string message;
    std::chrono::milliseconds took{0};
};

Refusal refusal(const std::string& address, const Credentials& credentials) {
    const auto begin = std::chrono::steady_clock::now();
    Refusal found;
    try {
        describe_worker(address, credentials, 2000ms);
        found.message = "no error";
    } catch (const Error& error) {
        found = {error.code(), error.what(), {}};
    }
    found.took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    return found;
}

class DescribeTest : public ::testing::Test {
protected:
    const Fleet fleet_ = make_fleet(2);
    const Credentials credentials_ = make_node_credentials(fleet_, "client", 2);
};

TEST(WorkerDescriptionTest, SaysWhatTheWorkerIs) {
    TestFleet fleet(1);
    const auto description =
        describe_worker(fleet.address(0), fleet.credentials(), 5s, fleet.spec(0).fingerprint);
    EXPECT_EQ(description.name, "node0");
    EXPECT_EQ(description.protocol_major, kProtocolMajor);
    EXPECT_EQ(description.activity, "idle");
    EXPECT_EQ(description.machine, shared_cores_id());
    EXPECT_EQ(description.devices, std::vector<std::string>{"CPU"});
    EXPECT_GT(description.memory_available_bytes, 0U);
    EXPECT_GT(description.num_cores, 0U);
    EXPECT_TRUE(description.holds_model);
    ModelFingerprint other = fleet.spec(0).fingerprint;
    other.xml_sha256 = std::string(64, '0');
    EXPECT_FALSE(describe_worker(fleet.address(0), fleet.credentials(), 5s, other).holds_model);
}

TEST_F(DescribeTest, NobodyListens) {
    std::string address;
    { address = RawListener("").address(); }
    const Refusal found = refusal(address, credentials_);
    EXPECT_EQ(found.code, ErrorCode::kUnavailable);
    EXPECT_THAT(found.message, AllOf(HasSubstr(address), HasSubstr("Connection refused"),
                                     HasSubstr("shardline worker")));
}

TEST_F(DescribeTest, UnknownHostIsNamed) {
    const Refusal found = refusal("no-such-host.invalid:7411", credentials_);
    EXPECT_EQ(found.code, ErrorCode::kUnavailable);
    EXPECT_THAT(found.message, HasSubstr("no-such-host.invalid:7411"));
}

TEST_F(DescribeTest, HttpServerIsNoWorker) {
    const RawListener http("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    const Refusal found = refusal(http.address(), credentials_);
    EXPECT_EQ(found.code, ErrorCode::kUnavailable);
    EXPECT_THAT(found.message, HasSubstr("does not speak TLS"));
}

TEST_F(DescribeTest, SilentPortTimesOut) {
    const RawListener silent("");
    const Refusal found = refusal(silent.address(), credentials_);
    EXPECT_EQ(found.code, ErrorCode::kUnavailable);
    EXPECT_THAT(found.message, HasSubstr("says nothing"));
    EXPECT_LT(found.took, 15s);
}

TEST_F(DescribeTest, PlainGrpcIsNoWorker) {
    int port = 0;
    wire::Fleet::Service service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    const auto server = builder.BuildAndStart();
    const Refusal found = refusal("127.0.0.1:" + std::to_string(port), credentials_);
    EXPECT_EQ(found.code, ErrorCode::kUnavailable);
    EXPECT_THAT(found.message, HasSubstr("does not speak TLS"));
}

TEST_F(DescribeTest, ForeignFleetIsRefusedBothWays) {
    TestFleet foreign(1);
    const Refusal found = refusal(foreign.address(0), credentials_);
    EXPECT_EQ(found.code, ErrorCode::kPermissionDenied);
    EXPECT_THAT(found.message, HasSubstr("another fleet"));
    // A client that trusts the foreign worker but shows a certificate of its own fleet.
    Credentials half = credentials_;
    half.authority = foreign.fleet().authority;
    const Refusal turned_away = refusal(foreign.address(0), half);
    EXPECT_EQ(turned_away.code, ErrorCode::kPermissionDenied);
    EXPECT_THAT(turned_away.message, HasSubstr("another fleet"));
}

// A peer of our fleet that speaks what its answer says.
class OtherVersion final : public wire::Fleet::Service {
public:
    explicit OtherVersion(std::uint32_t major, std::uint32_t minor)
        : major_(major), minor_(minor) {}

    grpc::Status Describe(grpc::ServerContext*, const wire::DescribeRequest*,
                          wire::DescribeReply* reply) override {
        reply->mutable_hello()->set_protocol_major(major_);
        reply->mutable_hello()->set_protocol_minor(minor_);
        reply->mutable_hello()->set_build("0.0.1");
        reply->mutable_hello()->set_node("attic");
        return grpc::Status::OK;
    }

private:
    const std::uint32_t major_;
    const std::uint32_t minor_;
};

std::unique_ptr<grpc::Server> serve(grpc::Service* service, const Credentials& credentials,
                                    std::string& address) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", make_server_credentials(credentials), &port);
    builder.RegisterService(service);
    auto server = builder.BuildAndStart();
    address = "127.0.0.1:" + std::to_string(port);
    return server;
}

TEST_F(DescribeTest, OlderProtocolIsRefusedNamingBoth) {
    OtherVersion older(kProtocolMajor - 1, 3);
    std::string address;
    const auto server = serve(&older, make_node_credentials(fleet_, "attic", 2), address);
    const Refusal found = refusal(address, credentials_);
    EXPECT_EQ(found.code, ErrorCode::kUnsupported);
    EXPECT_THAT(found.message, AllOf(HasSubstr("attic"), HasSubstr("protocol 0.3"),
                                     HasSubstr("1.0"), HasSubstr(address)));
}

TEST_F(DescribeTest, NewerMinorIsAccepted) {
    OtherVersion newer(kProtocolMajor, kProtocolMinor + 1);
    std::string address;
    const auto server = serve(&newer, make_node_credentials(fleet_, "attic", 2), address);
    EXPECT_EQ(describe_worker(address, credentials_, 5s).protocol_minor, kProtocolMinor + 1);
}

TEST_F(DescribeTest, PeerWithoutOurServiceIsRefused) {
    wire::Stage::Service other;
    std::string address;
    const auto server = serve(&other, make_node_credentials(fleet_, "attic", 2), address);
    const Refusal found = refusal(address, credentials_);
    EXPECT_EQ(found.code, ErrorCode::kUnsupported);
    EXPECT_THAT(found.message, HasSubstr(fmt::format("does not know protocol {}.{}", kProtocolMajor,
                                                     kProtocolMinor)));
}

// Visitors at a worker's port. Afterwards a chain over the same worker computes.
class VisitorTest : public ::testing::Test {
protected:
    std::uint16_t port() const { return parse_address(fleet_.address(0)).port; }

    void TearDown() override {
        ChainLog log;
        const auto chain = fleet_.open(Epoch{1}, log);
        ASSERT_TRUE(chain->send(make_step(Epoch{1}, 1)));
        EXPECT_TRUE(log.wait_results(1, 10s)) << "the worker serves its own fleet";
    }

    TestFleet fleet_{1};
};

TEST_F(VisitorTest, PlainHttpIsClosed) {
    const RawSocket visitor(port());
    visitor.send("GET / HTTP/1.1\r\nHost: worker\r\n\r\n");
    EXPECT_TRUE(visitor.read_to_end(kHelloTimeout + 5s));
}

TEST_F(VisitorTest, OneByteThenSilenceIsClosedAfterTheDeadline) {
    const RawSocket visitor(port());
    visitor.send("\x16");
    EXPECT_TRUE(visitor.read_to_end(kHelloTimeout + 5s));
}

TEST_F(VisitorTest, TlsWithoutACertificateIsTurnedAway) {
    const RawSocket visitor(port());
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL* ssl = SSL_new(context);
    SSL_set_fd(ssl, visitor.descriptor());
    constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    SSL_set_alpn_protos(ssl, kHttp2, sizeof kHttp2);
    // In TLS 1.3 the handshake is over before the server misses the certificate.
    char byte = 0;
    const bool served = SSL_connect(ssl) == 1 && SSL_read(ssl, &byte, 1) == 1;
    EXPECT_FALSE(served);
    SSL_free(ssl);
    SSL_CTX_free(context);
}

TEST_F(VisitorTest, FiveHundredIdleSocketsDoNotKeepTheFleetOut) {
    std::vector<RawSocket> visitors;
    for (int i = 0; i < 500; ++i) {
        visitors.emplace_back(port());
        ASSERT_TRUE(visitors.back().connected()) << i;
    }
    EXPECT_EQ(describe_worker(fleet_.address(0), fleet_.credentials(), 5s).name, "node0");
    ChainLog log;
    const auto chain = fleet_.open(Epoch{0}, log);
    ASSERT_TRUE(chain->send(make_step(Epoch{0}, 1)));
    ASSERT_TRUE(log.wait_results(1, 10s));
    for (const RawSocket& visitor : visitors) {
        ASSERT_TRUE(visitor.read_to_end(kHelloTimeout + 10s)) << "idle ones are closed";
    }
}

TEST(WorkerServerTest, PortInUseAndBadOptionsAreRefused) {
    TestFleet fleet(1);
    WorkerOptions options = fleet.worker_options(0);
    const auto loader = [](const StageSpec&, const std::filesystem::path&, const LoadProgress&) {
        return make_test_executor(0);
    };
    try {
        WorkerServer second(options, loader);
        FAIL() << "the port is taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
        EXPECT_THAT(error.what(), HasSubstr(options.listen));
    }
    options.listen = "nonsense";
    EXPECT_THROW(WorkerServer(options, loader), Error);
    options.listen = "127.0.0.1:0";
    options.name.clear();
    EXPECT_THROW(WorkerServer(options, loader), Error);
    options.name = "second";
    options.credentials.private_key.clear();
    EXPECT_THROW(WorkerServer(options, loader), Error);
}

}  // namespace
}  // namespace shardline
