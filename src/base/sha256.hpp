#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace shardline {

// SHA-256, fed piece by piece. Single-threaded.
class Sha256 final {
public:
    Sha256();
    Sha256(Sha256&&) noexcept;
    Sha256& operator=(Sha256&&) noexcept;
    ~Sha256();

    void update(std::span<const std::byte> bytes);

    // The digest of all bytes so far as 64 lower-case hex digits; the object is used up by it.
    std::string finish();

private:
    struct State;
    std::unique_ptr<State> state_;
};

std::string sha256_hex(std::span<const std::byte> bytes);

// Reads the file in pieces of bounded size. Throws Error when it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace shardline
