// What peers with the right certificate may get wrong: hellos, frames, order. The worker refuses
// with a message, closes that stream, lives, and serves the next coordinator.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "transport/protocol.hpp"
#include "transport/wire_codec.hpp"
#include "unit/transport/raw_peer.hpp"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

class WorkerPeerTest : public ::testing::Test {
protected:
    void TearDown() override {
        ChainLog log;
        const auto chain = fleet_.open(Epoch{1000}, log);
        ASSERT_TRUE(chain->send(make_step(Epoch{1000}, 1)));
        EXPECT_TRUE(log.wait_results(1, 10s)) << "the worker serves the next coordinator";
    }

    TestFleet fleet_{1};
};

wire::StepFrame step_frame(std::uint64_t id) {
    wire::StepFrame frame;
    encode_step(make_step(Epoch{1}, id), *frame.mutable_step());
    return frame;
}

TEST_F(WorkerPeerTest, OtherMajorIsRefusedNamingBothVersions) {
    RawPeer peer(fleet_);
    const auto names_both = AllOf(HasSubstr("raw peer"), HasSubstr("protocol 0.9"),
                                  HasSubstr("node0"), HasSubstr("1.0"));
    wire::DescribeRequest describe;
    *describe.mutable_hello() = peer.hello(kProtocolMajor - 1, 9);
    wire::DescribeReply description;
    grpc::ClientContext describe_context;
    const auto described = peer.fleet->Describe(&describe_context, describe, &description);
    EXPECT_EQ(described.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(described.error_message(), names_both);

    RawSteps steps(peer);
    EXPECT_FALSE(steps.open(peer.hello(kProtocolMajor - 1, 9)));
    EXPECT_THAT(steps.end().error_message(), names_both);

    wire::WatchRequest watch;
    *watch.mutable_hello() = peer.hello(kProtocolMajor - 1, 9);
    grpc::ClientContext watch_context;
    const auto stream = peer.fleet->Watch(&watch_context, watch);
    wire::WatchReply reply;
    EXPECT_FALSE(stream->Read(&reply));
    EXPECT_THAT(stream->Finish().error_message(), names_both);
}

TEST_F(WorkerPeerTest, HigherMinorIsAccepted) {
    RawPeer peer(fleet_);
    wire::DescribeRequest describe;
    *describe.mutable_hello() = peer.hello(kProtocolMajor, kProtocolMinor + 1);
    wire::DescribeReply description;
    grpc::ClientContext context;
    EXPECT_TRUE(peer.fleet->Describe(&context, describe, &description).ok());
    EXPECT_EQ(description.hello().protocol_major(), kProtocolMajor);
}

TEST_F(WorkerPeerTest, SilenceInsteadOfAHelloIsClosedAfterADeadline) {
    RawPeer peer(fleet_);
    RawSteps steps(peer);
    grpc::ClientContext load_context;
    const auto load = peer.fleet->Load(&load_context);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(steps.end().ok());
    EXPECT_FALSE(load->Finish().ok());
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(took, kHelloTimeout - 500ms);
    EXPECT_LT(took, kHelloTimeout + 5s);
}

TEST_F(WorkerPeerTest, StepBeforeTheHelloIsRefused) {
    RawPeer peer(fleet_);
    RawSteps steps(peer);
    steps.write(step_frame(1));
    EXPECT_THAT(steps.end().error_message(), HasSubstr("expects a hello"));
}

TEST_F(WorkerPeerTest, StreamsWithoutAClaimAreRefused) {
    RawPeer peer(fleet_);
    RawSteps steps(peer);
    EXPECT_FALSE(steps.open(peer.hello()));
    EXPECT_THAT(steps.end().error_message(), HasSubstr("no coordinator holds this worker"));
    grpc::ClientContext context;
    const auto load = peer.fleet->Load(&context);
    wire::LoadRequest order;
    *order.mutable_stage()->mutable_hello() = peer.hello();
    load->Write(order);
    EXPECT_THAT(load->Finish().error_message(), HasSubstr("no coordinator holds this worker"));
}

TEST_F(WorkerPeerTest, ForeignSessionAndStaleEpochAreRefused) {
    RawPeer peer(fleet_);
    ASSERT_NO_FATAL_FAILURE(peer.set_up());
    RawSteps stale(peer);
    wire::Hello hello = peer.hello();
    hello.set_epoch(0);
    EXPECT_FALSE(stale.open(hello));
    EXPECT_THAT(stale.end().error_message(), HasSubstr("epoch 0 is stale"));
    RawSteps foreign(peer);
    hello = peer.hello();
    hello.set_session("somebody else");
    EXPECT_FALSE(foreign.open(hello));
    EXPECT_THAT(foreign.end().error_message(), HasSubstr("busy with the coordinator raw peer"));
}

TEST_F(WorkerPeerTest, UnloadGivesTheStageBackUnlessItRuns) {
    RawPeer peer(fleet_);
    ASSERT_NO_FATAL_FAILURE(peer.set_up());
    const auto unload = [&] {
        wire::UnloadRequest request;
        *request.mutable_hello() = peer.hello();
        wire::UnloadReply reply;
        grpc::ClientContext context;
        return peer.fleet->Unload(&context, request, &reply);
    };
    {
        RawSteps steps(peer);
        ASSERT_TRUE(steps.open(peer.hello()));
        EXPECT_THAT(unload().error_message(), HasSubstr("already serving"));
        steps.context.TryCancel();
        steps.end();
    }
    grpc::Status status;
    for (int i = 0; i < 100 && !(status = unload()).ok(); ++i) {
        std::this_thread::sleep_for(50ms);  // until the step stream has ended there, too
    }
    EXPECT_TRUE(status.ok()) << status.error_message();
    RawSteps steps(peer);
    EXPECT_FALSE(steps.open(peer.hello()));
    EXPECT_THAT(steps.end().error_message(), HasSubstr("no stage is loaded"));
}

TEST_F(WorkerPeerTest, SecondStepStreamIsRefused) {
    RawPeer peer(fleet_);
    ASSERT_NO_FATAL_FAILURE(peer.set_up());
    RawSteps first(peer);
    ASSERT_TRUE(first.open(peer.hello()));
    RawSteps second(peer);
    EXPECT_FALSE(second.open(peer.hello()));
    EXPECT_THAT(second.end().error_message(), HasSubstr("already serving"));
    first.context.TryCancel();
    first.end();
}

TEST_F(WorkerPeerTest, BadStepClosesTheStreamWithTheReason) {
    const auto refusal = [&](const std::function<void(wire::Step&)>& damage) {
        RawPeer peer(fleet_);
        peer.set_up();
        RawSteps steps(peer);
        EXPECT_TRUE(steps.open(peer.hello()));
        wire::StepFrame frame = step_frame(1);
        damage(*frame.mutable_step());
        steps.write(frame);
        const grpc::Status status = steps.end();
        EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
        return status.error_message();
    };
    EXPECT_THAT(refusal([](auto& step) { step.mutable_activations(0)->set_element_type(255); }),
                HasSubstr("unknown element type 255"));
    EXPECT_THAT(refusal([](auto& step) { step.mutable_activations(0)->set_shape(0, 0); }),
                HasSubstr("dimension 0"));
    EXPECT_THAT(refusal([](auto& step) {
                    step.mutable_activations(0)->set_shape(0, std::int64_t{1} << 62);
                }),
                HasSubstr("overflows"));
    EXPECT_THAT(refusal([](auto& step) { step.mutable_activations(0)->mutable_data()->clear(); }),
                HasSubstr("has 0"));
    EXPECT_THAT(refusal([](auto& step) {
                    step.mutable_plan()->mutable_spans(0)->set_block_table(0, 1U << 31);
                }),
                HasSubstr("outside the pool"));
}

TEST_F(WorkerPeerTest, FrameBeyondTheStepLimitIsRefused) {
    RawPeer peer(fleet_);
    ASSERT_NO_FATAL_FAILURE(peer.set_up());
    RawSteps steps(peer);
    ASSERT_TRUE(steps.open(peer.hello()));
    wire::StepFrame frame = step_frame(1);
    const std::size_t bytes = max_frame_bytes(kTestLimits.max_rows, kMaxRowBytes);
    frame.mutable_step()->mutable_activations(0)->mutable_data()->resize(bytes);
    steps.write(frame);
    EXPECT_THAT(steps.end().error_message(), HasSubstr("the limit is " + std::to_string(bytes)));
}

TEST_F(WorkerPeerTest, StaleStepsAreDroppedAndOthersGoOn) {
    RawPeer peer(fleet_);
    ASSERT_NO_FATAL_FAILURE(peer.set_up());
    RawSteps steps(peer);
    ASSERT_TRUE(steps.open(peer.hello()));
    wire::StepFrame stale = step_frame(1);
    stale.mutable_step()->mutable_plan()->set_epoch(0);
    ASSERT_TRUE(steps.write(stale));
    ASSERT_TRUE(steps.write(step_frame(2)));
    grpc::ClientContext context;
    wire::ResultsRequest request;
    *request.mutable_hello() = peer.hello();
    const auto results = peer.stage->Results(&context, request);
    wire::ResultFrame frame;
    ASSERT_TRUE(results->Read(&frame));
    ASSERT_TRUE(results->Read(&frame));
    EXPECT_EQ(frame.result().step(), 2U);
    context.TryCancel();
    results->Finish();
    steps.context.TryCancel();
    steps.end();
}

TEST_F(WorkerPeerTest, FloodOfStepsIsRefusedNotQueued) {
    RawPeer peer(fleet_);
    ASSERT_NO_FATAL_FAILURE(peer.set_up());
    RawSteps steps(peer);
    ASSERT_TRUE(steps.open(peer.hello()));
    for (std::uint64_t id = 1; id < 2000 && steps.write(step_frame(id)); ++id) {
    }
    steps.stream->WritesDone();
    EXPECT_FALSE(steps.end().ok()) << "results that nobody reads are not kept either";
}

// Frames that are no messages: of no bytes, of random bytes, and text.
TEST_F(WorkerPeerTest, GarbageOnTheStepStreamIsRefused) {
    RawPeer peer(fleet_);
    grpc::GenericStub stub(peer.channel);
    for (const std::string& bytes :
         {std::string(), std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 11),
          std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\x0A')}) {
        grpc::ClientContext context;
        grpc::CompletionQueue queue;
        const auto call = stub.PrepareCall(&context, "/shardline.wire.Stage/Steps", &queue);
        void* tag = nullptr;
        bool ok = false;
        call->StartCall(nullptr);
        queue.Next(&tag, &ok);
        const grpc::Slice slice(bytes);
        call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
        queue.Next(&tag, &ok);
        grpc::Status status;
        call->Finish(&status, nullptr);
        queue.Next(&tag, &ok);
        EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS) << status.error_message();
        queue.Shutdown();
    }
}

TEST_F(WorkerPeerTest, BadStageSpecificationsAreRefused) {
    RawPeer peer(fleet_);
    ASSERT_NO_FATAL_FAILURE(peer.set_up());
    const auto refusal = [&](const std::function<void(wire::LoadStage&)>& damage) {
        grpc::ClientContext context;
        const auto load = peer.fleet->Load(&context);
        wire::LoadRequest order;
        *order.mutable_stage()->mutable_hello() = peer.hello();
        encode_spec(peer.spec, *order.mutable_stage()->mutable_spec());
        damage(*order.mutable_stage());
        load->Write(order);
        wire::LoadReply reply;
        while (load->Read(&reply)) {
        }
        return load->Finish().error_message();
    };
    EXPECT_THAT(refusal([](auto& stage) { stage.mutable_spec()->set_last_layer(1U << 31); }),
                HasSubstr("the end of the layers is"));
    EXPECT_THAT(refusal([](auto& stage) { stage.mutable_spec()->set_last_layer(0); }),
                HasSubstr("without layers"));
    EXPECT_THAT(refusal([](auto& stage) { stage.mutable_spec()->set_num_blocks(0); }),
                HasSubstr("KV blocks is 0"));
    EXPECT_THAT(refusal([](auto& stage) { stage.mutable_spec()->set_max_rows(1U << 30); }),
                HasSubstr("the largest step is"));
    EXPECT_THAT(refusal([](auto& stage) {
                    stage.mutable_spec()->mutable_fingerprint()->set_xml_sha256("../../etc");
                }),
                HasSubstr("not a SHA-256"));
    EXPECT_THAT(refusal([](auto& stage) { stage.set_downstream_address("unix:/run/x"); }),
                HasSubstr("is no address"));
    EXPECT_THAT(refusal([](auto& stage) { stage.set_stage(1U << 20); }),
                HasSubstr("too many stages"));
    EXPECT_THAT(refusal([](auto& stage) {
                    const std::string other(64, 'a');
                    stage.mutable_spec()->mutable_fingerprint()->set_xml_sha256(other);
                }),
                HasSubstr("does not hold the model 'test'"));
}

}  // namespace
}  // namespace shardline
