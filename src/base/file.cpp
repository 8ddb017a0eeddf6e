#include "base/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace shardline {

namespace {

constexpr mode_t kFileMode = 0644;

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int error) {
    const bool full = error == ENOSPC || error == EDQUOT || error == ENOMEM || error == EMFILE;
    const ErrorCode code = error == ENOENT                     ? ErrorCode::kNotFound
                           : error == EACCES || error == EPERM ? ErrorCode::kPermissionDenied
                           : full                              ? ErrorCode::kResourceExhausted
                                                               : ErrorCode::kInvalidArgument;
    throw Error(code, fmt::format("cannot {} {}: {}", what, path.string(),
                                  std::generic_category().message(error)));
}

int open_descriptor(const std::filesystem::path& path, int flags) {
    int descriptor = -1;
    do {
        descriptor = ::open(path.c_str(), flags | O_CLOEXEC, kFileMode);
    } while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0) {
        fail("open", path, errno);
    }
    return descriptor;
}

struct stat status_of(int descriptor, const std::filesystem::path& path) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) {
        fail("examine", path, errno);
    }
    return status;
}

}  // namespace

File::File(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

File File::open_read(const std::filesystem::path& path) {
    File file(path, open_descriptor(path, O_RDONLY));
    if (!S_ISREG(status_of(file.descriptor_, path).st_mode)) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{} is not a regular file", path.string()));
    }
    return file;
}

File File::open_or_create(const std::filesystem::path& path) {
    return {path, open_descriptor(path, O_RDWR | O_CREAT)};
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

File::~File() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

std::uint64_t File::size() const {
    return static_cast<std::uint64_t>(status_of(descriptor_, path_).st_size);
}

std::uint64_t File::allocated_bytes() const {
    constexpr std::uint64_t kStatBlockBytes = 512;
    return static_cast<std::uint64_t>(status_of(descriptor_, path_).st_blocks) * kStatBlockBytes;
}

void File::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t count =
            ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            fail("read", path_, errno);
        }
        if (count == 0) {
            throw Error(ErrorCode::kCorrupt, fmt::format("{} ends at byte {}, {} bytes short",
                                                         path_.string(), offset, bytes.size()));
        }
        offset += static_cast<std::uint64_t>(count);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
}

void File::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t count =
            ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            fail("write", path_, errno);
        }
        offset += static_cast<std::uint64_t>(count);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
}

void File::set_size(std::uint64_t bytes) {
    if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
        fail("resize", path_, errno);
    }
}

void File::punch_hole(std::uint64_t offset, std::uint64_t bytes) {
#ifdef FALLOC_FL_PUNCH_HOLE
    constexpr int kMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const auto start = static_cast<off_t>(offset);
    if (::fallocate(descriptor_, kMode, start, static_cast<off_t>(bytes)) != 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS) {
        fail("free a range of", path_, errno);
    }
#endif
}

void File::sync() {
    if (::fdatasync(descriptor_) != 0) {
        fail("sync", path_, errno);
    }
}

bool File::try_lock() {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
        return true;
    }
    if (errno != EWOULDBLOCK) {
        fail("lock", path_, errno);
    }
    return false;
}

MappedFile::MappedFile(const std::filesystem::path& path) {
    const int descriptor = open_descriptor(path, O_RDONLY);
    struct stat status {};
    int error = ::fstat(descriptor, &status) == 0 ? 0 : errno;
    if (error == 0 && !S_ISREG(status.st_mode)) {
        error = EINVAL;
    }
    void* address = MAP_FAILED;
    const auto size = static_cast<std::size_t>(status.st_size);
    if (error == 0 && size > 0) {
        address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        error = address == MAP_FAILED ? errno : 0;
    }
    ::close(descriptor);
    if (error != 0) {
        fail("map", path, error);
    }
    if (size > 0) {
        bytes_ = {static_cast<const std::byte*>(address), size};
    }
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) {
        // munmap takes a pointer to non-const though it only releases the pages.
        ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    }
}

std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
    const File file = File::open_read(path);
    const std::uint64_t size = file.size();
    if (size > max_bytes) {
        throw Error(ErrorCode::kCorrupt, fmt::format("{} has {} bytes, more than the {} allowed",
                                                     path.string(), size, max_bytes));
    }
    std::string content(static_cast<std::size_t>(size), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(content)));
    return content;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
    std::filesystem::path temporary = path;
    temporary += fmt::format(".{}.tmp", ::getpid());
    try {
        File file = File::open_or_create(temporary);
        file.set_size(0);
        file.write_at(0, std::as_bytes(std::span(content)));
        file.sync();
        if (std::rename(temporary.c_str(), path.c_str()) != 0) {
            fail("replace", path, errno);
        }
    } catch (...) {
        ::unlink(temporary.c_str());
        throw;
    }
    sync_directory(path.has_parent_path() ? path.parent_path() : ".");
}

void sync_directory(const std::filesystem::path& directory) {
    const int descriptor = open_descriptor(directory, O_RDONLY | O_DIRECTORY);
    const int error = ::fsync(descriptor) == 0 ? 0 : errno;
    ::close(descriptor);
    // Some file systems cannot sync a directory; then there is nothing more to be done.
    if (error != 0 && error != EINVAL) {
        fail("sync", directory, error);
    }
}

}  // namespace shardline
