#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "transport/grpc_connection.hpp"
#include "transport/wire_spec.hpp"

namespace shardline {

// The reading end of a server's stream whose first frame is a hello. Owns the call and a thread
// that reads it. Internal to the room.
template <typename Frame>
class StreamReader final {
public:
    using Open = std::function<std::unique_ptr<grpc::ClientReader<Frame>>(grpc::ClientContext*)>;

    // Both from the reading thread. on_frame may throw Error to end the stream; on_broken comes
    // once when the open stream ends without close(), and must not end this object.
    using OnFrame = std::function<void(Frame& frame)>;
    using OnBroken = std::function<void(std::string reason)>;

    StreamReader(Open open, OnFrame on_frame, OnBroken on_broken)
        : on_frame_(std::move(on_frame)), on_broken_(std::move(on_broken)) {
        opened_ = opening_.get_future();
        thread_ = std::thread([this, open = std::move(open)] { read(open); });
    }

    ~StreamReader() { close(); }

    // Once. True when the hello came; else the stream has ended and status() says why, or it was
    // cancelled because the time was up (DEADLINE_EXCEEDED).
    bool wait_open(std::chrono::milliseconds timeout) {
        if (opened_.wait_for(timeout) != std::future_status::ready) {
            close();
            status_ = {grpc::StatusCode::DEADLINE_EXCEEDED, "no answer in time"};
            return false;
        }
        return opened_.get();
    }

    const grpc::Status& status() const { return status_; }

    // Ends the stream without waiting, and without on_broken.
    void cancel() {
        closing_ = true;
        context_.TryCancel();
    }

    void close() {
        cancel();
        if (thread_.joinable()) {
            thread_.join();
        }
    }

private:
    void read(const Open& open) {
        const auto stream = open(&context_);
        Frame frame;
        const bool something = stream->Read(&frame);
        const bool hello = something && frame.has_hello();
        if (hello) {
            opening_.set_value(true);
        } else if (something) {
            context_.TryCancel();  // else the server has ended it, and its status says why
        }
        std::string refused;
        while (hello && refused.empty()) {
            frame.Clear();
            if (!stream->Read(&frame)) {
                break;
            }
            try {
                on_frame_(frame);
            } catch (const Error& error) {
                refused = error.what();
                context_.TryCancel();
            }
        }
        status_ = stream->Finish();
        if (!hello) {
            opening_.set_value(false);
        } else if (!closing_) {
            on_broken_(refused.empty() ? describe_break(status_) : refused);
        }
    }

    const OnFrame on_frame_;
    const OnBroken on_broken_;
    grpc::ClientContext context_;
    std::promise<bool> opening_;
    std::future<bool> opened_;
    grpc::Status status_;  // written before the promise or the end of the thread
    std::atomic<bool> closing_ = false;
    std::thread thread_;
};

}  // namespace shardline
