#pragma once

#include <cstdint>
#include <memory>
#include <openvino/openvino.hpp>
#include <string>
#include <vector>

namespace shardline {

inline constexpr std::int64_t kUnknownWindow = -1;

// How far back an attention looks: the number of newest positions, 0 for all of them.
struct AttentionWindow {
    std::string attention;  // friendly name of the op
    std::int64_t tokens = 0;
};

// Of a stateful graph, in the order of its layers: the masks are computed (alone, without any
// weights) for one token after a very long past, and the positions left open are counted.
std::vector<AttentionWindow> stateful_windows(ov::Core& core,
                                              const std::shared_ptr<ov::Model>& model);

// Of a paged graph, in the order of its layers, as the paged attention ops have them.
std::vector<AttentionWindow> paged_windows(const std::shared_ptr<ov::Model>& model);

}  // namespace shardline
