#pragma once

#include <string>

#include "engine/engine.hpp"

namespace shardline {

// The engine's figures as Prometheus scrapes them (text format 0.0.4), all named shardline_*.
std::string engine_metrics(const EngineStats& stats, bool chain_is_up);

}  // namespace shardline
