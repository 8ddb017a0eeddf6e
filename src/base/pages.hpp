#pragma once

#include <cstddef>
#include <utility>

namespace shardline {

// Memory of zeros that takes address space only: a page costs memory from its first write on.
// For pools that are sized for the worst case and mostly empty.
class ZeroPages final {
public:
    ZeroPages() = default;

    // Throws Error(kResourceExhausted) when the system refuses the address space.
    explicit ZeroPages(std::size_t size_bytes);

    ZeroPages(ZeroPages&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          size_bytes_(std::exchange(other.size_bytes_, 0)) {}
    ZeroPages& operator=(ZeroPages&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_bytes_, other.size_bytes_);
        return *this;
    }
    ~ZeroPages();

    void* data() const { return data_; }
    std::size_t size_bytes() const { return size_bytes_; }

private:
    void* data_ = nullptr;
    std::size_t size_bytes_ = 0;
};

// Returns to the system what the heap holds without using it, as after a load.
void release_unused_heap();

}  // namespace shardline
