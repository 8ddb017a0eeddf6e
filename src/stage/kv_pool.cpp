#include "stage/kv_pool.hpp"

#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

namespace {

constexpr std::size_t kTokenAxis = 2;  // [block, heads, token, features]

bool has_prefix(const ov::Output<const ov::Node>& port, const std::string& prefix) {
    for (const std::string& name : port.get_names()) {
        if (name.rfind(prefix, 0) == 0) {
            return true;
        }
    }
    return false;
}

// Tokens in one block of the device; throws when the layout is not one we can serve.
std::uint32_t device_block_tokens(const ov::Output<const ov::Node>& port) {
    const ov::PartialShape& shape = port.get_partial_shape();
    const bool usable = shape.rank().is_static() && shape.size() == 4 && shape[1].is_static() &&
                        shape[2].is_static() && shape[3].is_static();
    if (!usable) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("the device leaves the shape {} of {} open", shape.to_string(),
                                port.get_any_name()));
    }
    const auto tokens = static_cast<std::uint32_t>(shape[kTokenAxis].get_length());
    if (tokens == 0 || kBlockTokens % tokens != 0) {
        // Keys quantised by channel keep their scales as extra rows of the block and land here
        // too: later tokens would change the bits of earlier ones.
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("{} has shape {}: blocks of {} tokens, or keys not quantised by "
                                "token, cannot be served",
                                port.get_any_name(), shape.to_string(), tokens));
    }
    return tokens;
}

}  // namespace

bool is_kv_port(const ov::Output<const ov::Node>& port) {
    return has_prefix(port, "key_cache.") || has_prefix(port, "value_cache.");
}

KvPool::KvPool(const ov::CompiledModel& compiled, std::uint32_t num_blocks)
    : num_blocks_(num_blocks) {
    std::uint32_t common_tokens = 0;
    for (const ov::Output<const ov::Node>& port : compiled.inputs()) {
        if (!is_kv_port(port)) {
            continue;
        }
        const std::uint32_t tokens = device_block_tokens(port);
        if (common_tokens != 0 && common_tokens != tokens) {
            throw Error(ErrorCode::kUnsupported,
                        fmt::format("{} has blocks of {} tokens, another cache of {}",
                                    port.get_any_name(), tokens, common_tokens));
        }
        common_tokens = tokens;
        device_blocks_per_block_ = kBlockTokens / tokens;
        add_cache(port);
    }
}

void KvPool::add_cache(const ov::Output<const ov::Node>& port) {
    const ov::PartialShape& partial = port.get_partial_shape();
    ov::Shape shape = {std::size_t{num_blocks_} * device_blocks_per_block_};
    std::size_t block_elements = device_blocks_per_block_;
    for (std::size_t axis = 1; axis < partial.size(); ++axis) {
        shape.push_back(static_cast<std::size_t>(partial[axis].get_length()));
        block_elements *= shape.back();
    }
    const ov::element::Type type = port.get_element_type();
    const std::size_t block_bytes = block_elements * type.bitwidth() / 8;
    ZeroPages pages(block_bytes * num_blocks_);
    ov::Tensor tensor(type, shape, pages.data());
    bytes_per_block_ += block_bytes;
    caches_.push_back({port, std::move(tensor), block_bytes, std::move(pages)});
}

void KvPool::bind(ov::InferRequest& infer) const {
    for (const Cache& cache : caches_) {
        infer.set_tensor(cache.port, cache.tensor);
    }
}

void KvPool::copy(const std::vector<BlockCopy>& copies) {
    for (const BlockCopy& copy : copies) {
        if (copy.from == copy.to) {
            continue;
        }
        for (Cache& cache : caches_) {
            auto* bytes = static_cast<std::uint8_t*>(cache.pages.data());
            std::memcpy(bytes + to_number(copy.to) * cache.block_bytes,
                        bytes + to_number(copy.from) * cache.block_bytes, cache.block_bytes);
        }
    }
}

}  // namespace shardline
