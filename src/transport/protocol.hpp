#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace shardline {

// What both ends of a connection agree on. docs/wire.md tells the whole story.

// Major: refused when different. Minor: grows when something is added that an older peer may
// ignore, so any minor of the same major is accepted.
inline constexpr std::uint32_t kProtocolMajor = 1;
inline constexpr std::uint32_t kProtocolMinor = 1;

// A worker says that it lives this often, on a connection of its own.
inline constexpr std::chrono::milliseconds kHeartbeatPeriod{500};

// A worker from which nothing was heard for so long is lost. With the period of the heartbeat and
// of the check this stays well below the five seconds after which clients want to know.
inline constexpr std::chrono::milliseconds kHeartbeatLost{3000};

// TCP connect, TLS handshake and hello; a peer that is silent for so long is closed.
inline constexpr std::chrono::milliseconds kConnectTimeout{4000};
inline constexpr std::chrono::milliseconds kHelloTimeout{5000};

// Opening one hop of the chain, the search for the reason of a failure included. Who opens a hop
// waits so long for every stage behind it: the one next to the fault gives up first and says why.
inline constexpr std::chrono::milliseconds kOpenHopTimeout = 3 * kConnectTimeout;

// Unary calls besides connecting.
inline constexpr std::chrono::milliseconds kCallTimeout{5000};

// Steps accepted by one chain and not yet answered; no queue on the way is longer.
inline constexpr std::size_t kMaxStepsInFlight = 32;

inline constexpr std::uint32_t kMaxStages = 256;

// A step frame holds at most spec.max_rows rows; a row (all crossing tensors of a boundary
// together) at most this much. No family known comes near: hidden sizes end at 16 Ki values.
inline constexpr std::size_t kMaxRowBytes = 256 * 1024;
inline constexpr std::size_t kFrameOverheadBytes = 4 * 1024 * 1024;  // plan, names, block tables
inline constexpr std::size_t kMaxFrameBytes = std::size_t{1} << 30;  // whatever the spec says

// Outputs may be logits: rows as wide as the vocabulary.
inline constexpr std::size_t kMaxResultRowBytes = 2 * 1024 * 1024;

inline constexpr std::size_t kMaxControlFrameBytes = 4 * 1024 * 1024;

constexpr std::size_t max_frame_bytes(std::uint32_t max_rows, std::size_t row_bytes) {
    const std::size_t wanted = kFrameOverheadBytes + max_rows * row_bytes;
    return wanted < kMaxFrameBytes ? wanted : kMaxFrameBytes;
}

}  // namespace shardline
