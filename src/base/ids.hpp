#pragma once

#include <cstdint>
#include <type_traits>

namespace shardline {

// Strong ids: an enum class has no arithmetic and no implicit conversion, hashes and compares.
enum class RequestId : std::uint64_t {};
enum class SequenceId : std::uint64_t {};
enum class StepId : std::uint64_t {};
enum class BlockId : std::uint32_t {};

// Grows each time the chain is set up anew; a frame of an older epoch is dropped, not answered.
enum class Epoch : std::uint64_t {};

template <typename Id>
requires std::is_enum_v<Id>
constexpr auto to_number(Id id) {
    return static_cast<std::underlying_type_t<Id>>(id);
}

// Layers [first, last) of a model, counted from 0.
struct LayerRange {
    std::uint32_t first = 0;
    std::uint32_t last = 0;

    std::uint32_t size() const { return last - first; }
    bool operator==(const LayerRange&) const = default;
};

}  // namespace shardline
