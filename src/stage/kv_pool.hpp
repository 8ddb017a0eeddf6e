#pragma once

#include <cstdint>
#include <openvino/openvino.hpp>
#include <vector>

#include "base/pages.hpp"
#include "step/step.hpp"

namespace shardline {

// The KV blocks of one part: for each of its layers a key and a value tensor whose first dimension
// is the block. Owns the memory; knows nothing of who holds a block. Used from the stage's thread.
//
//     block b of a layer = device blocks [b * n, (b + 1) * n),  n = device_blocks_per_block()
//
// A pool costs memory block by block as blocks are first written.
class KvPool final {
public:
    // Shapes and types are those of the compiled model's inputs key_cache.* and value_cache.*.
    // Throws Error(kUnsupported) when the device's blocks do not divide kBlockTokens or keys are
    // not quantised token by token, kResourceExhausted when the pool cannot be reserved.
    KvPool(const ov::CompiledModel& compiled, std::uint32_t num_blocks);

    void bind(ov::InferRequest& infer) const;
    void copy(const std::vector<BlockCopy>& copies);

    std::uint32_t num_blocks() const { return num_blocks_; }
    std::uint32_t device_blocks_per_block() const { return device_blocks_per_block_; }
    std::uint64_t bytes_per_block() const { return bytes_per_block_; }
    bool empty() const { return caches_.empty(); }

private:
    struct Cache {
        ov::Output<const ov::Node> port;
        ov::Tensor tensor;            // over pages
        std::size_t block_bytes = 0;  // of one block of ours
        ZeroPages pages;
    };

    void add_cache(const ov::Output<const ov::Node>& port);

    std::uint32_t num_blocks_;
    std::uint32_t device_blocks_per_block_ = 1;
    std::uint64_t bytes_per_block_ = 0;
    std::vector<Cache> caches_;
};

// True for the KV inputs of a paged graph.
bool is_kv_port(const ov::Output<const ov::Node>& port);

}  // namespace shardline
