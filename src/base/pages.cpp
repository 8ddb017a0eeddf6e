#include "base/pages.hpp"

#include <malloc.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardline {

ZeroPages::ZeroPages(std::size_t size_bytes) : size_bytes_(size_bytes) {
    if (size_bytes == 0) {
        return;
    }
    void* pages = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        throw Error(
            ErrorCode::kResourceExhausted,
            fmt::format("cannot reserve {} bytes of memory: {}", size_bytes, std::strerror(errno)));
    }
    data_ = pages;
}

ZeroPages::~ZeroPages() {
    if (data_ != nullptr) {
        munmap(data_, size_bytes_);
    }
}

void release_unused_heap() {
    malloc_trim(0);
}

}  // namespace shardline
