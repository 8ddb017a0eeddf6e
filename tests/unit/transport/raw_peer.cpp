#include "unit/transport/raw_peer.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "transport/grpc_connection.hpp"
#include "transport/protocol.hpp"

namespace shardline {

RawPeer::RawPeer(const TestFleet& test_fleet, std::uint32_t worker)
    : spec(test_fleet.spec(worker)),
      identity{"raw peer", "raw identity", Epoch{1}},
      channel(open_channel(test_fleet.address(worker), test_fleet.credentials(), Purpose::kData,
                           kMaxControlFrameBytes)),
      fleet(wire::Fleet::NewStub(channel)),
      stage(wire::Stage::NewStub(channel)) {}

RawPeer::~RawPeer() {
    if (watch) {
        watch_context.TryCancel();
        watch->Finish();
    }
}

wire::Hello RawPeer::hello(std::uint32_t major, std::uint32_t minor) const {
    wire::Hello message;
    encode_hello(identity, message);
    message.set_protocol_major(major);
    message.set_protocol_minor(minor);
    return message;
}

wire::Hello RawPeer::hello() const {
    return hello(kProtocolMajor, kProtocolMinor);
}

void RawPeer::set_up() {
    wire::WatchRequest request;
    *request.mutable_hello() = hello();
    watch = fleet->Watch(&watch_context, request);
    wire::WatchReply reply;
    ASSERT_TRUE(watch->Read(&reply));
    grpc::ClientContext context;
    set_deadline(context, std::chrono::seconds(20));
    const auto load = fleet->Load(&context);
    wire::LoadRequest order;
    *order.mutable_stage()->mutable_hello() = hello();
    encode_spec(spec, *order.mutable_stage()->mutable_spec());
    load->Write(order);
    wire::LoadReply loaded;
    while (load->Read(&loaded)) {
    }
    load->WritesDone();
    ASSERT_TRUE(load->Finish().ok());
    ASSERT_TRUE(loaded.has_ready());
}

bool RawSteps::open(const wire::Hello& hello) {
    wire::StepFrame frame;
    *frame.mutable_hello() = hello;
    wire::StepsReply reply;
    return stream->Write(frame) && stream->Read(&reply) && reply.has_hello();
}

grpc::Status RawSteps::end() {
    wire::StepsReply reply;
    while (stream->Read(&reply)) {
    }
    return stream->Finish();
}

}  // namespace shardline
