#include "security/certificates.hpp"

#include <fmt/format.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <array>

#include "base/error.hpp"
#include "security/credentials.hpp"

namespace shardline {
namespace {

constexpr int kSerialBits = 127;             // positive and at most 20 octets, as X.509 asks
constexpr long kClockSkewS = 24L * 60 * 60;  // clocks of machines at home differ

void require(bool succeeded, const char* what) {
    if (!succeeded) {
        throw_openssl(what);
    }
}

void set_random_serial(X509* certificate) {
    const std::unique_ptr<BIGNUM, decltype(&BN_free)> number(BN_new(), &BN_free);
    require(number != nullptr &&
                BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
                BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr,
            "cannot make a serial number");
}

void add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> extension(
        X509V3_EXT_conf_nid(nullptr, &context, nid, value), &X509_EXTENSION_free);
    require(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1,
            "cannot add a certificate extension");
}

void add_extensions(X509* certificate, X509* issuer, bool is_authority) {
    if (is_authority) {
        add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
        add_extension(certificate, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
        add_extension(certificate, issuer, NID_subject_key_identifier, "hash");
        return;
    }
    const std::string names = std::string("DNS:") + kFleetServerName;
    add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE");
    add_extension(certificate, issuer, NID_key_usage, "critical,digitalSignature");
    add_extension(certificate, issuer, NID_ext_key_usage, "serverAuth,clientAuth");
    add_extension(certificate, issuer, NID_subject_alt_name, names.c_str());
    add_extension(certificate, issuer, NID_subject_key_identifier, "hash");
    add_extension(certificate, issuer, NID_authority_key_identifier, "keyid");
}

std::string read_all(BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    return std::string(data, static_cast<std::size_t>(size));
}

OpensslPtr<BIO> memory_bio() {
    OpensslPtr<BIO> bio(BIO_new(BIO_s_mem()));
    require(bio != nullptr, "cannot allocate");
    return bio;
}

OpensslPtr<BIO> bio_over(const std::string& text) {
    OpensslPtr<BIO> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    require(bio != nullptr, "cannot allocate");
    return bio;
}

// A key under a passphrase is refused; without this OpenSSL would ask on the terminal.
int no_passphrase(char*, int, int, void*) {
    return -1;
}

}  // namespace

void throw_openssl(const std::string& what) {
    std::array<char, 256> reason{};
    ERR_error_string_n(ERR_get_error(), reason.data(), reason.size());
    ERR_clear_error();
    throw Error(ErrorCode::kInternal, fmt::format("{}: {}", what, reason.data()));
}

OpensslPtr<EVP_PKEY> make_key() {
    OpensslPtr<EVP_PKEY> key(EVP_EC_gen("P-256"));
    require(key != nullptr, "cannot make a key");
    return key;
}

OpensslPtr<X509> make_certificate(const CertificateRequest& request, EVP_PKEY* key, X509* issuer,
                                  EVP_PKEY* issuer_key) {
    OpensslPtr<X509> certificate(X509_new());
    require(certificate != nullptr && X509_set_version(certificate.get(), X509_VERSION_3) == 1,
            "cannot make a certificate");
    set_random_serial(certificate.get());
    X509_NAME* subject = X509_get_subject_name(certificate.get());
    const auto* name = reinterpret_cast<const unsigned char*>(request.common_name.data());
    require(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, name,
                                       static_cast<int>(request.common_name.size()), -1, 0) == 1,
            "cannot set the name of a certificate");
    X509* signer = issuer == nullptr ? certificate.get() : issuer;
    require(X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer)) == 1 &&
                X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kClockSkewS) != nullptr &&
                X509_time_adj_ex(X509_getm_notAfter(certificate.get()), request.valid_days, 0,
                                 nullptr) != nullptr &&
                X509_set_pubkey(certificate.get(), key) == 1,
            "cannot fill a certificate");
    add_extensions(certificate.get(), signer, request.is_authority);
    require(X509_sign(certificate.get(), issuer_key, EVP_sha256()) > 0,
            "cannot sign a certificate");
    return certificate;
}

std::string to_pem(const X509* certificate) {
    const OpensslPtr<BIO> bio = memory_bio();
    require(PEM_write_bio_X509(bio.get(), certificate) == 1, "cannot write a certificate");
    return read_all(bio.get());
}

std::string to_pem(EVP_PKEY* key) {
    const OpensslPtr<BIO> bio = memory_bio();
    require(PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
            "cannot write a key");
    return read_all(bio.get());
}

OpensslPtr<X509> certificate_from_pem(const std::string& pem) {
    const OpensslPtr<BIO> bio = bio_over(pem);
    OpensslPtr<X509> certificate(PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr));
    ERR_clear_error();
    return certificate;
}

OpensslPtr<EVP_PKEY> key_from_pem(const std::string& pem) {
    const OpensslPtr<BIO> bio = bio_over(pem);
    OpensslPtr<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
    ERR_clear_error();
    return key;
}

std::string verify_certificate(X509* certificate, X509* authority) {
    const OpensslPtr<X509_STORE> store(X509_STORE_new());
    const OpensslPtr<X509_STORE_CTX> context(X509_STORE_CTX_new());
    X509* subject = certificate == nullptr ? authority : certificate;
    require(store != nullptr && context != nullptr &&
                X509_STORE_add_cert(store.get(), authority) == 1 &&
                X509_STORE_CTX_init(context.get(), store.get(), subject, nullptr) == 1,
            "cannot check a certificate");
    if (certificate != nullptr) {
        for (const int purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT}) {
            if (X509_check_purpose(certificate, purpose, 0) != 1) {
                return "it is not meant for both ends of a connection";
            }
        }
        if (X509_check_host(certificate, kFleetServerName, 0, 0, nullptr) != 1) {
            return fmt::format("it does not carry the name {}", kFleetServerName);
        }
    } else if (X509_check_ca(authority) == 0) {
        return "it is not an authority";
    }
    if (X509_verify_cert(context.get()) == 1) {
        return {};
    }
    ERR_clear_error();
    return X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
}

}  // namespace shardline
