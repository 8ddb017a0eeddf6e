#pragma once

#include <string>

#include "base/ids.hpp"
#include "step/stage_spec.hpp"

// What travels outside steps: hellos and stage specifications <-> their messages. As in
// wire_codec, decoding trusts nothing and throws Error(kCorrupt).

namespace shardline {

namespace wire {
class Hello;
class StageSpec;
class EffectiveSettings;
}  // namespace wire

struct PeerHello {
    std::string node;     // name of the sender, for people
    std::string session;  // the coordinator's identity; empty in a worker's answer
    Epoch epoch{};
};

void encode_hello(const PeerHello& hello, wire::Hello& message);

// Throws Error(kUnsupported) that names `own_node`, the peer and both versions when the protocols
// do not fit.
PeerHello decode_hello(const wire::Hello& message, const std::string& own_node);

void encode_spec(const StageSpec& spec, wire::StageSpec& message);
StageSpec decode_spec(const wire::StageSpec& message);

void encode_effective(const EffectiveSettings& settings, wire::EffectiveSettings& message);
EffectiveSettings decode_effective(const wire::EffectiveSettings& message);

// The product's version, as hellos carry it.
std::string build_version();

}  // namespace shardline
