#include "sidereal/security/cluster_key.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <array>
#include <memory>

namespace sidereal::security {
namespace {

const std::string kSecret = "0123456789abcdef0123456789abcdef";

TEST(ClusterKey, RandomSecretsAreLongEnoughAndDiffer) {
  const std::string secret = random_secret();
  EXPECT_EQ(secret.size(), 64U);
  EXPECT_NE(random_secret(), secret);
  EXPECT_TRUE(derive_cluster_key(secret).ok());
}

TEST(ClusterKey, TwoWhoKnowTheSecretHaveEqualKeysAndCertificates) {
  const auto one = derive_cluster_key(kSecret);
  const auto two = derive_cluster_key(kSecret);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->private_key, two->private_key);
  EXPECT_EQ(one->certificate, two->certificate);
}

TEST(ClusterKey, AnotherSecretGivesAnotherKeyAndAnotherCertificate) {
  const auto one = derive_cluster_key(kSecret);
  const auto two = derive_cluster_key(kSecret + "0");
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(one->private_key, two->private_key);
  EXPECT_NE(one->certificate, two->certificate);
}

TEST(ClusterKey, TheKeyIsThatOfTheCertificateAndNeitherShowsTheSecret) {
  const auto key = derive_cluster_key(kSecret);
  ASSERT_TRUE(key.ok());
  EXPECT_TRUE(check_certificates({.certificate_file = "c",
                                  .certificate = key->certificate,
                                  .key_file = "k",
                                  .key = key->private_key,
                                  .ca_file = "a",
                                  .ca = key->certificate})
                  .ok());
  EXPECT_EQ(key->certificate.find(kSecret), std::string::npos);
  EXPECT_EQ(key->private_key.find(kSecret), std::string::npos);
}

// The seed by RFC 5869 with salt "sidereal" and info "sidereal cluster key 1: Ed25519", calculated
// with HMAC alone: a release with another derivation cannot join a cluster of this one.
TEST(ClusterKey, TheSeedIsTheHkdfThatTheHeaderNames) {
  const auto key = derive_cluster_key(kSecret);
  ASSERT_TRUE(key.ok());
  const std::unique_ptr<BIO, int (*)(BIO*)> text(
      BIO_new_mem_buf(key->private_key.data(), static_cast<int>(key->private_key.size())),
      BIO_free);
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> parsed(
      PEM_read_bio_PrivateKey(text.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  ASSERT_NE(parsed, nullptr);
  std::array<unsigned char, 32> seed;
  size_t bytes = seed.size();
  ASSERT_EQ(EVP_PKEY_get_raw_private_key(parsed.get(), seed.data(), &bytes), 1);
  std::string hex;
  for (const unsigned char byte : seed) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex, "61a3e634af8804fb431bd181375e851a5584e0345075078dcc764092b7920754");
}

TEST(ClusterKey, ASecretOfFewBytesIsRefusedWithoutBeingShown) {
  const auto key = derive_cluster_key("hunter2");
  EXPECT_EQ(key.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(base::message_of(key.status()).find("hunter2"), std::string::npos);
}

TEST(ClusterKey, AKeyOfAnotherCertificateIsRefused) {
  const auto one = derive_cluster_key(kSecret);
  const auto two = derive_cluster_key(kSecret + "0");
  ASSERT_TRUE(one.ok() && two.ok());
  const Status mixed = check_certificates({.certificate_file = "cert.pem",
                                           .certificate = one->certificate,
                                           .key_file = "key.pem",
                                           .key = two->private_key,
                                           .ca_file = "ca.pem",
                                           .ca = one->certificate});
  EXPECT_EQ(mixed.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(base::message_of(mixed).find("key.pem"), std::string::npos);
}

TEST(ClusterKey, WipedTextIsEmpty) {
  std::string text = kSecret;
  wipe(&text);
  EXPECT_TRUE(text.empty());
}

}  // namespace
}  // namespace sidereal::security
