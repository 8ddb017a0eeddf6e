#include "security/credentials.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "security/certificates.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxValidDays = 36500;
constexpr std::size_t kMaxNameBytes = 64;               // X.509's own limit of a common name
constexpr std::uintmax_t kMaxPemFileBytes = 64 * 1024;  // a few kilobytes is usual

constexpr const char* kAuthorityFile = "ca.pem";
constexpr const char* kAuthorityKeyFile = "ca.key";
constexpr const char* kCertificateFile = "node.pem";
constexpr const char* kKeyFile = "node.key";

void check_days(int valid_days) {
    if (valid_days < 1 || valid_days > kMaxValidDays) {
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("{} days: a certificate is valid for 1 to {}", valid_days, kMaxValidDays));
    }
}

std::string read_pem(const fs::path& file) {
    std::error_code failure;
    const std::uintmax_t size = fs::file_size(file, failure);
    if (failure) {
        throw Error(ErrorCode::kNotFound,
                    fmt::format("{}: {}; make credentials with 'shardline fleet'", file.string(),
                                failure.message()));
    }
    if (size > kMaxPemFileBytes) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("{}: {} bytes are too many for a PEM file", file.string(), size));
    }
    std::ifstream in(file, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (!in) {
        throw Error(ErrorCode::kPermissionDenied, fmt::format("{}: cannot read", file.string()));
    }
    return text;
}

std::string read_secret(const fs::path& file) {
    std::string text = read_pem(file);
    constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
    if ((fs::status(file).permissions() & kOthers) != fs::perms::none) {
        throw Error(ErrorCode::kPermissionDenied,
                    fmt::format("{}: others can read this key; run 'chmod 600 {}'", file.string(),
                                file.string()));
    }
    return text;
}

// Written beside its place and moved there, so that a full disk leaves the old file.
void write_file(const fs::path& file, const std::string& text, fs::perms permissions) {
    const fs::path fresh = fs::path(file).concat(".new");
    fs::remove(fresh);
    std::ofstream out(fresh, std::ios::binary);
    // The permissions come before the secret does.
    std::error_code failure;
    fs::permissions(fresh, permissions, failure);
    out << text;
    out.close();
    if (!out || failure) {
        throw Error(ErrorCode::kPermissionDenied, fmt::format("{}: cannot write", file.string()));
    }
    fs::rename(fresh, file);
}

void write_public(const fs::path& file, const std::string& text) {
    write_file(file, text,
               fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read |
                   fs::perms::others_read);
}

void write_secret(const fs::path& file, const std::string& text) {
    write_file(file, text, fs::perms::owner_read | fs::perms::owner_write);
}

void make_directory(const fs::path& directory) {
    std::error_code failure;
    fs::create_directories(directory, failure);
    if (failure) {
        throw Error(ErrorCode::kPermissionDenied,
                    fmt::format("{}: {}", directory.string(), failure.message()));
    }
}

OpensslPtr<X509> parse_certificate(const std::string& pem, const fs::path& file) {
    OpensslPtr<X509> certificate = certificate_from_pem(pem);
    if (!certificate) {
        throw Error(ErrorCode::kCorrupt, fmt::format("{}: no PEM certificate", file.string()));
    }
    return certificate;
}

void check_key(const std::string& pem, const fs::path& file, const X509* certificate,
               const fs::path& certificate_file) {
    const OpensslPtr<EVP_PKEY> key = key_from_pem(pem);
    if (!key) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("{}: no PEM private key without a passphrase", file.string()));
    }
    if (EVP_PKEY_eq(X509_get0_pubkey(certificate), key.get()) != 1) {
        throw Error(
            ErrorCode::kPermissionDenied,
            fmt::format("{}: does not belong to {}", file.string(), certificate_file.string()));
    }
}

void refuse_unless_valid(X509* certificate, X509* authority, const fs::path& file) {
    if (const std::string fault = verify_certificate(certificate, authority); !fault.empty()) {
        throw Error(ErrorCode::kPermissionDenied, fmt::format("{}: {}", file.string(), fault));
    }
}

}  // namespace

Fleet make_fleet(int valid_days) {
    check_days(valid_days);
    const OpensslPtr<EVP_PKEY> key = make_key();
    const CertificateRequest request{"shardline fleet", valid_days, true};
    const OpensslPtr<X509> authority = make_certificate(request, key.get(), nullptr, key.get());
    return {to_pem(authority.get()), to_pem(key.get())};
}

Credentials make_node_credentials(const Fleet& fleet, const std::string& node_name,
                                  int valid_days) {
    check_days(valid_days);
    if (node_name.empty() || node_name.size() > kMaxNameBytes) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("a node's name has 1 to {} bytes", kMaxNameBytes));
    }
    const OpensslPtr<X509> authority = parse_certificate(fleet.authority, kAuthorityFile);
    check_key(fleet.authority_key, kAuthorityKeyFile, authority.get(), kAuthorityFile);
    const OpensslPtr<EVP_PKEY> authority_key = key_from_pem(fleet.authority_key);
    const OpensslPtr<EVP_PKEY> key = make_key();
    const CertificateRequest request{node_name, valid_days, false};
    const OpensslPtr<X509> certificate =
        make_certificate(request, key.get(), authority.get(), authority_key.get());
    return {fleet.authority, to_pem(certificate.get()), to_pem(key.get())};
}

void save_credentials(const Credentials& credentials, const fs::path& directory) {
    make_directory(directory);
    write_public(directory / kAuthorityFile, credentials.authority);
    write_public(directory / kCertificateFile, credentials.certificate);
    write_secret(directory / kKeyFile, credentials.private_key);
}

Credentials load_credentials(const fs::path& directory) {
    Credentials credentials;
    credentials.authority = read_pem(directory / kAuthorityFile);
    credentials.certificate = read_pem(directory / kCertificateFile);
    credentials.private_key = read_secret(directory / kKeyFile);
    const auto authority = parse_certificate(credentials.authority, directory / kAuthorityFile);
    const auto certificate =
        parse_certificate(credentials.certificate, directory / kCertificateFile);
    check_key(credentials.private_key, directory / kKeyFile, certificate.get(),
              directory / kCertificateFile);
    refuse_unless_valid(nullptr, authority.get(), directory / kAuthorityFile);
    refuse_unless_valid(certificate.get(), authority.get(), directory / kCertificateFile);
    return credentials;
}

void save_fleet(const Fleet& fleet, const fs::path& directory) {
    make_directory(directory);
    write_public(directory / kAuthorityFile, fleet.authority);
    write_secret(directory / kAuthorityKeyFile, fleet.authority_key);
}

Fleet load_fleet(const fs::path& directory) {
    Fleet fleet;
    fleet.authority = read_pem(directory / kAuthorityFile);
    fleet.authority_key = read_secret(directory / kAuthorityKeyFile);
    const auto authority = parse_certificate(fleet.authority, directory / kAuthorityFile);
    check_key(fleet.authority_key, directory / kAuthorityKeyFile, authority.get(),
              directory / kAuthorityFile);
    refuse_unless_valid(nullptr, authority.get(), directory / kAuthorityFile);
    return fleet;
}

bool equal_secrets(const std::string& left, const std::string& right) {
    return left.size() == right.size() &&
           CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace shardline
