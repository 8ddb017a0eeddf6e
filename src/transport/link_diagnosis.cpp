#include "transport/link_diagnosis.hpp"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <ctime>
#include <memory>
#include <system_error>

#include "security/certificates.hpp"

namespace shardline {
namespace {

constexpr unsigned kPollMs = 20;

// Protocols we would speak over TLS: HTTP/2, length first.
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

struct SslDeleter {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
};

// OpenSSL wraps the system's errors in its own; the system's say more.
std::string last_reason() {
    std::string reason = "the connection was closed";
    while (const unsigned long code = ERR_get_error()) {
        if (ERR_SYSTEM_ERROR(code)) {
            ERR_clear_error();
            return std::error_code(ERR_GET_REASON(code), std::system_category()).message();
        }
        if (const char* text = ERR_reason_error_string(code)) {
            reason = text;
        }
    }
    return reason;
}

// True when the peer said what it dislikes; then last_reason() is its alert.
bool last_is_alert() {
    const unsigned long code = ERR_peek_last_error();
    return !ERR_SYSTEM_ERROR(code) && ERR_GET_LIB(code) == ERR_LIB_SSL &&
           ERR_GET_REASON(code) >= SSL_AD_REASON_OFFSET;
}

class Probe final {
public:
    Probe(const std::string& address, std::chrono::milliseconds timeout)
        : address_(address),
          deadline_(std::time(nullptr) + 1 +
                    std::chrono::duration_cast<std::chrono::seconds>(timeout).count()),
          bio_(BIO_new_connect(address.c_str())) {}

    bool connect() {
        if (!bio_) {
            return false;
        }
        BIO_ctrl(bio_.get(), BIO_C_SET_NBIO, 1, nullptr);
        while (BIO_do_connect(bio_.get()) != 1) {
            if (BIO_should_retry(bio_.get()) == 0) {
                return false;
            }
            if (BIO_wait(bio_.get(), deadline_, kPollMs) <= 0) {
                timed_out_ = true;
                return false;
            }
        }
        return true;
    }

    bool start_tls(const Credentials& credentials) {
        context_.reset(SSL_CTX_new(TLS_client_method()));
        const auto authority = certificate_from_pem(credentials.authority);
        const auto certificate = certificate_from_pem(credentials.certificate);
        const auto key = key_from_pem(credentials.private_key);
        if (!context_ || !authority || !certificate || !key) {
            return false;
        }
        X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), authority.get());
        SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
        SSL_CTX_use_certificate(context_.get(), certificate.get());
        SSL_CTX_use_PrivateKey(context_.get(), key.get());
        ssl_.reset(SSL_new(context_.get()));
        if (!ssl_) {
            return false;
        }
        // What SSL_set_tlsext_host_name() does, without its old-style casts.
        SSL_ctrl(ssl_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                 const_cast<char*>(kFleetServerName));
        SSL_set1_host(ssl_.get(), kFleetServerName);
        SSL_set_alpn_protos(ssl_.get(), kHttp2, sizeof kHttp2);
        BIO_up_ref(bio_.get());
        SSL_set_bio(ssl_.get(), bio_.get(), bio_.get());
        return true;
    }

    bool handshake() {
        return repeat([this] { return SSL_connect(ssl_.get()); });
    }

    // In TLS 1.3 the server looks at our certificate after we think that all is well.
    bool read_something() {
        std::array<char, 64> buffer{};
        return repeat(
            [&] { return SSL_read(ssl_.get(), buffer.data(), static_cast<int>(buffer.size())); });
    }

    bool timed_out() const { return timed_out_; }
    long verify_result() const { return SSL_get_verify_result(ssl_.get()); }

private:
    template <typename Operation>
    bool repeat(Operation operation) {
        while (true) {
            ERR_clear_error();
            const int result = operation();
            if (result > 0) {
                return true;
            }
            const int kind = SSL_get_error(ssl_.get(), result);
            if (kind != SSL_ERROR_WANT_READ && kind != SSL_ERROR_WANT_WRITE) {
                return false;
            }
            if (BIO_wait(bio_.get(), deadline_, kPollMs) <= 0) {
                timed_out_ = true;
                return false;
            }
        }
    }

    std::string address_;
    std::time_t deadline_;
    OpensslPtr<BIO> bio_;
    std::unique_ptr<SSL_CTX, SslDeleter> context_;
    std::unique_ptr<SSL, SslDeleter> ssl_;
    bool timed_out_ = false;
};

Error another_fleet(const std::string& address, const std::string& reason) {
    return {ErrorCode::kPermissionDenied,
            fmt::format("the node at {} is of another fleet ({}); give both the credentials of "
                        "one fleet",
                        address, reason)};
}

Error no_tls(const std::string& address, const std::string& reason) {
    return {ErrorCode::kUnavailable,
            fmt::format("what listens at {} does not speak TLS ({}), so it is no shardline worker",
                        address, reason)};
}

}  // namespace

Error diagnose_link(const std::string& address, const Credentials& credentials,
                    std::chrono::milliseconds timeout, const std::string& seen) {
    ERR_clear_error();
    Probe probe(address, timeout);
    if (!probe.connect()) {
        const std::string reason = probe.timed_out() ? "no answer in time" : last_reason();
        return {ErrorCode::kUnavailable,
                fmt::format("no worker answers at {}: {}; is 'shardline worker' running there?",
                            address, reason)};
    }
    if (!probe.start_tls(credentials)) {
        return {ErrorCode::kInvalidArgument, "the credentials of this node are damaged"};
    }
    if (!probe.handshake()) {
        if (probe.timed_out()) {
            return {
                ErrorCode::kUnavailable,
                fmt::format("what listens at {} accepts connections and says nothing", address)};
        }
        if (probe.verify_result() != X509_V_OK) {
            return another_fleet(address, X509_verify_cert_error_string(probe.verify_result()));
        }
        const bool alert = last_is_alert();
        const std::string reason = last_reason();
        return alert ? another_fleet(address, reason) : no_tls(address, reason);
    }
    // A worker that accepts our certificate speaks first: HTTP/2 settings.
    if (!probe.read_something() && !probe.timed_out()) {
        return another_fleet(
            address, last_is_alert() ? last_reason() : "it does not accept our certificate");
    }
    return {ErrorCode::kUnavailable, fmt::format("worker at {}: {}", address, seen)};
}

}  // namespace shardline
