#include "base/sha256.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"

namespace shardline {

namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

struct ContextDeleter {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

void check(int result) {
    if (result != 1) {
        throw Error(ErrorCode::kInternal, "OpenSSL cannot compute SHA-256");
    }
}

}  // namespace

struct Sha256::State {
    std::unique_ptr<EVP_MD_CTX, ContextDeleter> context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
    state_->context.reset(EVP_MD_CTX_new());
    if (!state_->context) {
        throw Error(ErrorCode::kResourceExhausted, "no memory for a SHA-256 context");
    }
    check(EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr));
}

Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
    check(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()));
}

std::string Sha256::finish() {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    check(EVP_DigestFinal_ex(state_->context.get(), digest.data(), &size));
    std::string hex;
    hex.reserve(std::size_t{2} * size);
    for (unsigned int i = 0; i < size; ++i) {
        hex += kDigits[digest[i] >> 4U];
        hex += kDigits[digest[i] & 15U];
    }
    return hex;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
    Sha256 hash;
    hash.update(bytes);
    return hash.finish();
}

std::string sha256_of_file(const std::filesystem::path& path) {
    const File file = File::open_read(path);
    const std::uint64_t size = file.size();
    std::vector<std::byte> buffer(
        static_cast<std::size_t>(std::min<std::uint64_t>(size, kReadBytes)));
    Sha256 hash;
    for (std::uint64_t offset = 0; offset < size; offset += buffer.size()) {
        const std::span piece(buffer.data(), static_cast<std::size_t>(std::min<std::uint64_t>(
                                                 size - offset, buffer.size())));
        file.read_at(offset, piece);
        hash.update(piece);
    }
    return hash.finish();
}

}  // namespace shardline
