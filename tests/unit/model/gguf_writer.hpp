#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardline {

// Puts a GGUF file together, sound or not: nothing is checked, and the counts, the version and
// offsets can be made to lie.
class GgufWriter final {
public:
    std::uint32_t version = 3;
    std::string magic = "GGUF";
    std::uint64_t extra_tensors = 0;  // announced, not there
    std::uint64_t extra_pairs = 0;
    std::uint64_t alignment = 32;  // where data is put; says nothing by itself

    // A pair with a value of GGUF's type number `type`, given as bytes.
    void pair(std::string_view key, std::uint32_t type, const std::string& value) {
        pairs_ += string(key) + number(type) + value;
        ++num_pairs_;
    }
    void text(std::string_view key, std::string_view value) { pair(key, 8, string(value)); }
    void u32(std::string_view key, std::uint32_t value) { pair(key, 4, number(value)); }
    void f32(std::string_view key, float value) { pair(key, 6, number(value)); }
    void texts(std::string_view key, const std::vector<std::string>& values) {
        std::string bytes = number(std::uint32_t{8}) + number(std::uint64_t{values.size()});
        for (const std::string& value : values) {
            bytes += string(value);
        }
        pair(key, 9, bytes);
    }
    void i32s(std::string_view key, const std::vector<std::int32_t>& values) {
        std::string bytes = number(std::uint32_t{5}) + number(std::uint64_t{values.size()});
        for (const std::int32_t value : values) {
            bytes += number(value);
        }
        pair(key, 9, bytes);
    }

    void tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions,
                std::uint32_t type, const std::string& data) {
        tensor_at(name, dimensions, type, data_.size());
        data_ += data;
        data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    }

    // An entry that points where it likes.
    void tensor_at(std::string_view name, const std::vector<std::uint64_t>& dimensions,
                   std::uint32_t type, std::uint64_t offset) {
        tensors_ += string(name) + number(static_cast<std::uint32_t>(dimensions.size()));
        for (const std::uint64_t dimension : dimensions) {
            tensors_ += number(dimension);
        }
        tensors_ += number(type) + number(offset);
        ++num_tensors_;
    }

    std::string bytes() const {
        std::string file = magic + number(version) + number(num_tensors_ + extra_tensors) +
                           number(num_pairs_ + extra_pairs) + pairs_ + tensors_;
        file.resize((file.size() + alignment - 1) / alignment * alignment);
        return file + data_;
    }

    template <typename Number>
    static std::string number(Number value) {
        static_assert(std::is_arithmetic_v<Number>);
        std::string bytes(sizeof(Number), '\0');
        std::memcpy(bytes.data(), &value, sizeof(Number));
        return bytes;
    }
    static std::string string(std::string_view text) {
        return number(std::uint64_t{text.size()}) + std::string(text);
    }

private:
    std::string pairs_;
    std::string tensors_;
    std::string data_;
    std::uint64_t num_pairs_ = 0;
    std::uint64_t num_tensors_ = 0;
};

}  // namespace shardline
