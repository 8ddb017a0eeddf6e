#include "engine/request.hpp"

namespace shardline {

namespace {

void send(RequestHandle& handle, const FinishEvent& finish) {
    RequestEvent event;
    event.finish = finish;
    handle.events.try_push(std::move(event));
}

}  // namespace

void send_finish(const Request& request, const FinishEvent& finish) {
    send(*request.handle, finish);
    for (const Fork& fork : request.forks) {
        send(*fork.handle, finish);
    }
}

}  // namespace shardline
