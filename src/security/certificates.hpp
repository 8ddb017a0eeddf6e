#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

// OpenSSL objects with owners, and the few steps that credentials and TLS checks are made of.
// Everything here throws Error(kInternal) with OpenSSL's reason when OpenSSL itself fails.

namespace shardline {

struct OpensslDeleter {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { X509_free(certificate); }
    void operator()(X509_STORE* store) const { X509_STORE_free(store); }
    void operator()(X509_STORE_CTX* context) const { X509_STORE_CTX_free(context); }
    void operator()(BIO* bio) const { BIO_free(bio); }
};
template <typename Object>
using OpensslPtr = std::unique_ptr<Object, OpensslDeleter>;

// `what` and OpenSSL's own words for the last failure of this thread.
[[noreturn]] void throw_openssl(const std::string& what);

OpensslPtr<EVP_PKEY> make_key();

struct CertificateRequest {
    std::string common_name;
    int valid_days = 0;
    bool is_authority = false;
};

// Signed by `issuer`, or by itself when issuer is null.
OpensslPtr<X509> make_certificate(const CertificateRequest& request, EVP_PKEY* key, X509* issuer,
                                  EVP_PKEY* issuer_key);

std::string to_pem(const X509* certificate);
std::string to_pem(EVP_PKEY* key);

// Null when the text holds no such thing.
OpensslPtr<X509> certificate_from_pem(const std::string& pem);
OpensslPtr<EVP_PKEY> key_from_pem(const std::string& pem);

// Empty when `certificate` is valid now, signed by `authority` and meant for both ends of a
// connection; else OpenSSL's reason. A null certificate checks the authority alone.
std::string verify_certificate(X509* certificate, X509* authority);

}  // namespace shardline
