#include "transport/step_sender.hpp"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "base/error.hpp"
#include "stage.grpc.pb.h"
#include "transport/grpc_connection.hpp"
#include "transport/protocol.hpp"
#include "transport/wire_codec.hpp"

namespace shardline {
namespace {

// A cancel is tiny and there is at most one per step in flight, but a peer upstream could repeat
// them for ever.
constexpr std::size_t kMaxCancelsWaiting = 4 * kMaxStepsInFlight;

struct Cancel {
    Epoch epoch{};
    StepId step{};
};

// Two lanes into the one stream: cancels first.
class Outbox final {
public:
    using Item = std::variant<Cancel, Step>;

    bool push(Step step) { return put(steps_, std::move(step), kMaxStepsInFlight); }
    bool push(Cancel cancel) { return put(cancels_, cancel, kMaxCancelsWaiting); }

    // False when closed: what is left then is dropped.
    bool pop(Item& item) {
        std::unique_lock lock(mutex_);
        not_empty_.wait(lock, [&] { return closed_ || !cancels_.empty() || !steps_.empty(); });
        if (closed_) {
            return false;
        }
        if (!cancels_.empty()) {
            item = cancels_.front();
            cancels_.pop_front();
        } else {
            item = std::move(steps_.front());
            steps_.pop_front();
        }
        return true;
    }

    void close() {
        {
            std::lock_guard lock(mutex_);
            closed_ = true;
        }
        not_empty_.notify_all();
    }

private:
    template <typename Lane, typename Value>
    bool put(Lane& lane, Value&& value, std::size_t limit) {
        {
            std::lock_guard lock(mutex_);
            if (closed_ || lane.size() >= limit) {
                return false;
            }
            lane.push_back(std::forward<Value>(value));
        }
        not_empty_.notify_one();
        return true;
    }

    std::mutex mutex_;
    std::condition_variable not_empty_;
    std::deque<Step> steps_;      // guarded by mutex_
    std::deque<Cancel> cancels_;  // guarded by mutex_
    bool closed_ = false;         // guarded by mutex_
};

void encode(Outbox::Item&& item, wire::StepFrame& frame) {
    frame.Clear();
    if (auto* step = std::get_if<Step>(&item)) {
        encode_step(std::move(*step), *frame.mutable_step());
        return;
    }
    const Cancel& cancel = std::get<Cancel>(item);
    frame.mutable_cancel()->set_epoch(to_number(cancel.epoch));
    frame.mutable_cancel()->set_step(to_number(cancel.step));
}

}  // namespace

struct StepSender::State {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<wire::Stage::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<wire::StepFrame, wire::StepsReply>> stream;
    OnBroken on_broken;
    Outbox outbox;
    std::promise<bool> answered;  // false: the stream ended instead, with final_status
    grpc::Status final_status;
    std::atomic<bool> closing = false;
    std::thread reader;
    std::thread writer;

    void write_steps() {
        Outbox::Item item;
        wire::StepFrame frame;
        while (outbox.pop(item)) {
            encode(std::move(item), frame);
            if (!stream->Write(frame)) {
                return;  // the reader learns why
            }
        }
    }

    // A connection that does not come about holds up the first write, so that is done here too.
    bool say_hello(const wire::StepFrame& hello) {
        wire::StepsReply reply;
        if (!stream->Write(hello) || !stream->Read(&reply)) {
            return false;
        }
        if (!reply.has_hello()) {
            context.TryCancel();
            return false;
        }
        return true;
    }

    void read_to_the_end(const wire::StepFrame& hello) {
        if (!say_hello(hello)) {
            final_status = stream->Finish();
            answered.set_value(false);
            return;
        }
        writer = std::thread([this] { write_steps(); });
        answered.set_value(true);
        wire::StepsReply reply;
        while (stream->Read(&reply)) {
            // Nothing is expected here, and nothing is obeyed.
        }
        outbox.close();
        writer.join();
        final_status = stream->Finish();
        if (!closing) {
            on_broken(describe_break(final_status));
        }
    }
};

StepSender::StepSender(const std::string& address, const Credentials& credentials,
                       const PeerHello& hello, std::chrono::milliseconds timeout,
                       OnBroken on_broken)
    : state_(std::make_unique<State>()) {
    State& state = *state_;
    state.on_broken = std::move(on_broken);
    state.channel = open_channel(address, credentials, Purpose::kData, kMaxControlFrameBytes);
    state.stub = wire::Stage::NewStub(state.channel);
    state.stream = state.stub->Steps(&state.context);
    wire::StepFrame frame;
    encode_hello(hello, *frame.mutable_hello());
    auto answer = state.answered.get_future();
    state.reader = std::thread([&state, frame] { state.read_to_the_end(frame); });
    const bool timely = answer.wait_for(timeout) == std::future_status::ready;
    if (!timely) {
        state.context.TryCancel();
    }
    if (answer.get() && timely) {
        return;
    }
    close();
    const std::string peer = fmt::format("worker at {}", address);
    if (!timely) {
        throw Error(ErrorCode::kUnavailable,
                    fmt::format("{} does not take steps within {} ms", peer, timeout.count()));
    }
    throw to_error(state.final_status, peer, address, credentials);
}

StepSender::~StepSender() {
    close();
}

bool StepSender::push(Step step) {
    return state_->outbox.push(std::move(step));
}

bool StepSender::cancel(Epoch epoch, StepId step) {
    return state_->outbox.push(Cancel{epoch, step});
}

void StepSender::close() {
    state_->closing = true;
    state_->outbox.close();
    state_->context.TryCancel();
    if (state_->reader.joinable()) {
        state_->reader.join();
    }
}

}  // namespace shardline
