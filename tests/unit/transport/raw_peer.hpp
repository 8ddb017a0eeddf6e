#pragma once

#include <memory>
#include <string>

#include "fleet.grpc.pb.h"
#include "stage.grpc.pb.h"
#include "transport/wire_spec.hpp"
#include "unit/transport/chain_harness.hpp"

namespace shardline {

// A coordinator made by hand over the generated stubs, which says what no real one would.
struct RawPeer {
    explicit RawPeer(const TestFleet& fleet, std::uint32_t worker = 0);

    wire::Hello hello(std::uint32_t major, std::uint32_t minor) const;
    wire::Hello hello() const;

    // Claims the worker and loads its stage, so that a step stream may be opened.
    void set_up();

    StageSpec spec;
    PeerHello identity;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<wire::Fleet::Stub> fleet;
    std::unique_ptr<wire::Stage::Stub> stage;
    grpc::ClientContext watch_context;
    std::unique_ptr<grpc::ClientReader<wire::WatchReply>> watch;
    ~RawPeer();
};

// One step stream of a raw peer.
struct RawSteps {
    explicit RawSteps(RawPeer& peer) : stream(peer.stage->Steps(&context)) {}

    bool write(const wire::StepFrame& frame) { return stream->Write(frame); }
    bool open(const wire::Hello& hello);  // true when the worker answers it

    // What the worker ends the stream with; it must do so by itself.
    grpc::Status end();

    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<wire::StepFrame, wire::StepsReply>> stream;
};

}  // namespace shardline
