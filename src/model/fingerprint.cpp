#include "model/fingerprint.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "base/file.hpp"
#include "base/sha256.hpp"

namespace shardline {

namespace {

constexpr std::uint64_t kNumSamples = 256;
constexpr std::uint64_t kSampleBytes = 4096;  // a page: what a read of less would cost as well

}  // namespace

std::vector<ByteRange> fingerprint_samples(std::uint64_t bin_bytes) {
    std::vector<ByteRange> samples;
    if (bin_bytes <= kNumSamples * kSampleBytes) {
        for (std::uint64_t offset = 0; offset < bin_bytes; offset += kSampleBytes) {
            samples.push_back({offset, std::min(kSampleBytes, bin_bytes - offset)});
        }
        return samples;
    }
    const std::uint64_t num_pages = bin_bytes / kSampleBytes;
    for (std::uint64_t i = 0; i < kNumSamples; ++i) {
        samples.push_back({num_pages * i / kNumSamples * kSampleBytes, kSampleBytes});
    }
    return samples;
}

ModelFingerprint fingerprint_model(std::string_view xml, const std::filesystem::path& bin_file) {
    const File bin = File::open_read(bin_file);
    ModelFingerprint fingerprint;
    fingerprint.bin_bytes = bin.size();
    Sha256 hash;
    hash.update(std::as_bytes(std::span(xml)));
    std::array<std::byte, kSampleBytes> buffer{};
    for (const ByteRange& sample : fingerprint_samples(fingerprint.bin_bytes)) {
        const auto bytes = std::span(buffer).first(static_cast<std::size_t>(sample.size));
        bin.read_at(sample.offset, bytes);
        hash.update(bytes);
    }
    fingerprint.xml_sha256 = hash.finish();
    return fingerprint;
}

}  // namespace shardline
