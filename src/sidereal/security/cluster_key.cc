#include "sidereal/security/cluster_key.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>

#include "sidereal/security/openssl.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::security {

namespace {

constexpr size_t kSeedBytes = 32;
constexpr std::string_view kSalt = "sidereal";
constexpr std::string_view kInfo = "sidereal cluster key 1: Ed25519";
// The bytes of a certificate must not depend on when it is made, so it is valid for all time: what
// ends its use is another secret.
constexpr const char* kNotBefore = "20000101000000Z";
constexpr const char* kNotAfter = "99991231235959Z";

using Kdf = Owned<EVP_KDF, EVP_KDF_free>;
using KdfContext = Owned<EVP_KDF_CTX, EVP_KDF_CTX_free>;
using Extension = Owned<X509_EXTENSION, X509_EXTENSION_free>;

using Seed = std::array<unsigned char, kSeedBytes>;

Status library_error(const char* what) {
  return base::internal("OpenSSL could not {}; is it older than 3.0, or restricted (FIPS)?", what);
}

OSSL_PARAM octets(const char* name, std::string_view bytes) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<char*>(bytes.data()), bytes.size());
}

bool derive_seed(std::string_view secret, Seed* seed) {
  const Kdf kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  if (kdf == nullptr) return false;
  const KdfContext context(EVP_KDF_CTX_new(kdf.get()));
  std::string digest = "SHA256";
  const std::array<OSSL_PARAM, 5> parameters = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      octets(OSSL_KDF_PARAM_KEY, secret), octets(OSSL_KDF_PARAM_SALT, kSalt),
      octets(OSSL_KDF_PARAM_INFO, kInfo), OSSL_PARAM_construct_end()};
  return context != nullptr &&
         EVP_KDF_derive(context.get(), seed->data(), seed->size(), parameters.data()) == 1;
}

bool add_extension(X509* certificate, int kind, const char* value) {
  const Extension extension(X509V3_EXT_conf_nid(nullptr, nullptr, kind, value));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

/// A number that belongs to the key: the first bytes of its public half's digest, made positive.
bool set_serial(X509* certificate, EVP_PKEY* key) {
  std::array<unsigned char, kSeedBytes> public_key;
  size_t bytes = public_key.size();
  if (EVP_PKEY_get_raw_public_key(key, public_key.data(), &bytes) != 1) return false;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(public_key.data(), bytes, digest.data());
  uint64_t serial = 1;
  for (int i = 0; i < 7; ++i) serial = serial << 8 | digest[i];
  return ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial) == 1;
}

bool fill_certificate(X509* certificate, EVP_PKEY* key) {
  X509_NAME* const name = X509_get_subject_name(certificate);
  const auto* const common = reinterpret_cast<const unsigned char*>("sidereal cluster");
  return X509_set_version(certificate, X509_VERSION_3) == 1 && set_serial(certificate, key) &&
         ASN1_TIME_set_string(X509_getm_notBefore(certificate), kNotBefore) == 1 &&
         ASN1_TIME_set_string(X509_getm_notAfter(certificate), kNotAfter) == 1 &&
         X509_set_pubkey(certificate, key) == 1 &&
         X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_ASC, common, -1, -1, 0) == 1 &&
         X509_set_issuer_name(certificate, name) == 1 &&
         add_extension(certificate, NID_basic_constraints, "critical,CA:FALSE") &&
         add_extension(certificate, NID_subject_alt_name, "DNS:cluster.sidereal") &&
         X509_sign(certificate, key, nullptr) > 0;
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  return bytes > 0 ? std::string(data, static_cast<size_t>(bytes)) : std::string();
}

/// A key that wants a pass phrase is refused, not asked for on the terminal.
int no_pass_phrase(char*, int, int, void*) { return -1; }

}  // namespace

void wipe(std::string* text) {
  OPENSSL_cleanse(text->data(), text->size());
  text->clear();
}

std::string random_secret() {
  const std::unique_ptr<sys::Random> random = sys::posix::create_random();
  std::string secret;
  for (int i = 0; i < 4; ++i) secret += fmt::format("{:016x}", random->next());
  return secret;
}

Result<ClusterKey> derive_cluster_key(std::string_view secret) {
  if (secret.size() < kSecretBytesMin) {
    return base::invalid_argument(
        "the cluster secret has {} bytes; it needs at least {} random ones: make one with "
        "`openssl rand -hex 32`",
        secret.size(), kSecretBytesMin);
  }
  Seed seed;
  if (!derive_seed(secret, &seed)) return library_error("derive a key (HKDF-SHA256)");
  const Key key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size()));
  OPENSSL_cleanse(seed.data(), seed.size());
  if (key == nullptr) return library_error("make an Ed25519 key");
  const Certificate certificate(X509_new());
  if (certificate == nullptr || !fill_certificate(certificate.get(), key.get())) {
    return library_error("make a certificate");
  }
  const Bio key_text(BIO_new(BIO_s_secmem()));
  const Bio certificate_text(BIO_new(BIO_s_mem()));
  if (key_text == nullptr || certificate_text == nullptr ||
      PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
          1 ||
      PEM_write_bio_X509(certificate_text.get(), certificate.get()) != 1) {
    return library_error("write a key");
  }
  return ClusterKey{text_of(key_text.get()), text_of(certificate_text.get())};
}

Status check_certificates(const CertificateFiles& files) {
  const Bio own = reader_of(files.certificate);
  const Certificate certificate(PEM_read_bio_X509(own.get(), nullptr, no_pass_phrase, nullptr));
  if (certificate == nullptr) {
    return base::invalid_argument("{} holds no certificate in PEM form", files.certificate_file);
  }
  const Bio secret = reader_of(files.key);
  const Key key(PEM_read_bio_PrivateKey(secret.get(), nullptr, no_pass_phrase, nullptr));
  if (key == nullptr) {
    return base::invalid_argument("{} holds no private key in PEM form without a pass phrase",
                                  files.key_file);
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return base::invalid_argument("the key in {} does not belong to the certificate in {}",
                                  files.key_file, files.certificate_file);
  }
  const Bio authority = reader_of(files.ca);
  const Certificate ca(PEM_read_bio_X509(authority.get(), nullptr, no_pass_phrase, nullptr));
  if (ca == nullptr) {
    return base::invalid_argument("{} holds no certificate in PEM form", files.ca_file);
  }
  return {};
}

}  // namespace sidereal::security
