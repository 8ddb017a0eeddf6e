#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

// What the standard library cannot say about files: reads and writes at offsets, sparse files,
// mappings, data that is surely on disk. Every failure is an Error naming the file and the
// system's reason.

namespace shardline {

// An open file, accessed at offsets. Reads may come from several threads at once.
class File final {
public:
    static File open_read(const std::filesystem::path& path);
    static File open_or_create(const std::filesystem::path& path);  // for reading and writing

    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;
    ~File();

    const std::filesystem::path& path() const { return path_; }
    std::uint64_t size() const;

    // What the file takes on disk: less than size() when it has holes.
    std::uint64_t allocated_bytes() const;

    // Fills `bytes` wholly; Error(kCorrupt) when the file ends before.
    void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
    void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

    // Grows with a hole or cuts.
    void set_size(std::uint64_t bytes);

    // Gives the range's disk space back and reads as zeros from then on, where the file system
    // can; otherwise does nothing.
    void punch_hole(std::uint64_t offset, std::uint64_t bytes);

    // Returns when what was written is on disk.
    void sync();

    // False when another holder of the lock, in this process or another, is there. The lock goes
    // with the object.
    bool try_lock();

private:
    File(std::filesystem::path path, int descriptor);

    std::filesystem::path path_;
    int descriptor_ = -1;
};

// A whole file mapped read-only; pages are read when touched.
class MappedFile final {
public:
    explicit MappedFile(const std::filesystem::path& path);
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    std::span<const std::byte> bytes() const { return bytes_; }

private:
    std::span<const std::byte> bytes_;
};

// The content of a file of at most `max_bytes`; Error(kNotFound) when there is none and
// Error(kCorrupt) when it is larger.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// All or nothing, also over a power cut: written beside `path`, synced, renamed onto it.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Makes the entries of a directory (new files, renames) last over a power cut.
void sync_directory(const std::filesystem::path& directory);

}  // namespace shardline
