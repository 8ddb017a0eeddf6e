#include "security/credentials.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/x509v3.h>

#include <fstream>

#include "base/error.hpp"
#include "security/certificates.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CredentialsTest : public ::testing::Test {
protected:
    void SetUp() override {
        const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
        directory_ = fs::path(::testing::TempDir()) / (std::string("credentials-") + test->name());
        fs::remove_all(directory_);
    }
    void TearDown() override { fs::remove_all(directory_); }

    // The message of the Error that loading throws, "" when it does not.
    std::string refusal() const {
        try {
            load_credentials(directory_);
        } catch (const Error& error) {
            return error.what();
        }
        return {};
    }

    fs::path directory_;
};

// The same certificate with other dates, signed again with the fleet's key.
std::string with_dates(const Fleet& fleet, const std::string& pem, long from_s, long to_s) {
    const auto certificate = certificate_from_pem(pem);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), from_s);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), to_s);
    const auto key = key_from_pem(fleet.authority_key);
    EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
    return to_pem(certificate.get());
}

TEST_F(CredentialsTest, WhatIsSavedIsLoaded) {
    const Credentials made = make_node_credentials(make_fleet(30), "kitchen", 30);
    save_credentials(made, directory_);
    const Credentials loaded = load_credentials(directory_);
    EXPECT_EQ(loaded.authority, made.authority);
    EXPECT_EQ(loaded.certificate, made.certificate);
    EXPECT_EQ(loaded.private_key, made.private_key);
    EXPECT_EQ(fs::status(directory_ / "node.key").permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(CredentialsTest, CertificateIsForBothEndsAndCarriesTheFleetName) {
    const Credentials made = make_node_credentials(make_fleet(30), "kitchen", 30);
    const auto certificate = certificate_from_pem(made.certificate);
    ASSERT_NE(certificate, nullptr);
    EXPECT_EQ(X509_check_host(certificate.get(), kFleetServerName, 0, 0, nullptr), 1);
    EXPECT_EQ(X509_check_host(certificate.get(), "example.org", 0, 0, nullptr), 0);
    EXPECT_EQ(X509_get_extended_key_usage(certificate.get()),
              static_cast<std::uint32_t>(XKU_SSL_SERVER | XKU_SSL_CLIENT));
    EXPECT_EQ(X509_check_ca(certificate.get()), 0);
    EXPECT_EQ(EVP_PKEY_get_bits(X509_get0_pubkey(certificate.get())), 256);
}

TEST_F(CredentialsTest, FleetIsSavedAndSignsAfterLoading) {
    save_fleet(make_fleet(30), directory_);
    EXPECT_EQ(fs::status(directory_ / "ca.key").permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
    const Fleet loaded = load_fleet(directory_);
    save_credentials(make_node_credentials(loaded, "attic", 1), directory_ / "attic");
    EXPECT_NO_THROW(load_credentials(directory_ / "attic"));
}

TEST_F(CredentialsTest, ForeignAuthorityIsRefused) {
    Credentials mixed = make_node_credentials(make_fleet(30), "kitchen", 30);
    mixed.authority = make_fleet(30).authority;
    save_credentials(mixed, directory_);
    EXPECT_THAT(refusal(), HasSubstr("node.pem"));
}

TEST_F(CredentialsTest, ExpiredAndNotYetValidAreRefused) {
    const Fleet fleet = make_fleet(30);
    Credentials made = make_node_credentials(fleet, "kitchen", 30);
    const std::string good = made.certificate;
    made.certificate = with_dates(fleet, good, -7200, -3600);
    save_credentials(made, directory_);
    EXPECT_THAT(refusal(), HasSubstr("node.pem: certificate has expired"));
    made.certificate = with_dates(fleet, good, 3600, 7200);
    save_credentials(made, directory_);
    EXPECT_THAT(refusal(), HasSubstr("node.pem: certificate is not yet valid"));
}

TEST_F(CredentialsTest, KeyOfAnotherNodeIsRefused) {
    const Fleet fleet = make_fleet(30);
    Credentials mixed = make_node_credentials(fleet, "kitchen", 30);
    mixed.private_key = make_node_credentials(fleet, "attic", 30).private_key;
    save_credentials(mixed, directory_);
    EXPECT_THAT(refusal(), HasSubstr("node.key: does not belong to"));
}

TEST_F(CredentialsTest, KeyThatOthersCanReadIsRefused) {
    save_credentials(make_node_credentials(make_fleet(30), "kitchen", 30), directory_);
    fs::permissions(directory_ / "node.key", fs::perms::group_read, fs::perm_options::add);
    EXPECT_THAT(refusal(), HasSubstr("chmod 600"));
}

TEST_F(CredentialsTest, MissingAndGarbledFilesAreNamed) {
    EXPECT_THAT(refusal(), HasSubstr("ca.pem"));
    const Credentials made = make_node_credentials(make_fleet(30), "kitchen", 30);
    for (const char* name : {"ca.pem", "node.pem", "node.key"}) {
        save_credentials(made, directory_);
        fs::remove(directory_ / name);
        EXPECT_THAT(refusal(), HasSubstr(name)) << "missing";
        save_credentials(made, directory_);
        std::ofstream(directory_ / name) << "-----BEGIN NONSENSE-----\n";
        EXPECT_THAT(refusal(), HasSubstr(name)) << "garbled";
        save_credentials(made, directory_);
        std::ofstream(directory_ / name) << std::string(100'000, 'x');
        EXPECT_THAT(refusal(), HasSubstr(name)) << "too large";
    }
}

TEST_F(CredentialsTest, NodeCertificateIsNoAuthority) {
    const Fleet fleet = make_fleet(30);
    const Credentials node = make_node_credentials(fleet, "kitchen", 30);
    // A node that signs another node with its own key.
    const Credentials forged =
        make_node_credentials({node.certificate, node.private_key}, "intruder", 30);
    save_credentials(forged, directory_);
    EXPECT_THAT(refusal(), HasSubstr("ca.pem: it is not an authority"));
}

TEST(CredentialsMaking, OptionsAreChecked) {
    EXPECT_THROW(make_fleet(0), Error);
    EXPECT_THROW(make_fleet(40'000), Error);
    const Fleet fleet = make_fleet(30);
    EXPECT_THROW(make_node_credentials(fleet, "", 30), Error);
    EXPECT_THROW(make_node_credentials(fleet, std::string(65, 'n'), 30), Error);
    EXPECT_THROW(make_node_credentials({fleet.authority, make_fleet(30).authority_key}, "a", 30),
                 Error);
}

TEST(EqualSecrets, ComparesWholeTexts) {
    EXPECT_TRUE(equal_secrets("", ""));
    EXPECT_TRUE(equal_secrets("secret", "secret"));
    EXPECT_FALSE(equal_secrets("secret", "secreT"));
    EXPECT_FALSE(equal_secrets("secret", "secret2"));
    EXPECT_FALSE(equal_secrets("secret", ""));
}

}  // namespace
}  // namespace shardline
