#pragma once

#include "engine/engine.hpp"

namespace shardline {

// Submits; throws Error with the engine's reason when it refuses.
void submit_or_throw(Engine& engine, Request request);

// Throws Error when the answer ended with a failure.
void throw_if_failed(const FinishEvent& finish);

}  // namespace shardline
