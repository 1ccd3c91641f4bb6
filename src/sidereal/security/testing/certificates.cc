#include "sidereal/security/testing/certificates.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <filesystem>
#include <fstream>
#include <random>

namespace sidereal::security {

namespace {

using Key = std::shared_ptr<EVP_PKEY>;
using Certificate = std::shared_ptr<X509>;

Key make_key() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }

void extend(X509* certificate, int kind, const std::string& value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
  ASSERT_NE(extension, nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

/// Without an issuer the certificate is signed by itself.
Certificate make_certificate(const std::string& name, EVP_PKEY* key, X509* issuer, int seconds) {
  Certificate made(X509_new(), X509_free);
  X509_set_version(made.get(), X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(made.get()), std::random_device()());
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -7200);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), seconds);
  X509_set_pubkey(made.get(), key);
  X509_NAME_add_entry_by_NID(X509_get_subject_name(made.get()), NID_commonName, MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(made.get(), X509_get_subject_name(issuer != nullptr ? issuer : made.get()));
  if (issuer == nullptr) {
    extend(made.get(), NID_basic_constraints, "critical,CA:TRUE");
    extend(made.get(), NID_key_usage, "critical,keyCertSign");
  }
  return made;
}

template <class Write>
std::string pem(Write write) {
  const std::unique_ptr<BIO, int (*)(BIO*)> bio(BIO_new(BIO_s_mem()), BIO_free);
  EXPECT_EQ(write(bio.get()), 1);
  char* data = nullptr;
  const auto bytes = static_cast<size_t>(BIO_get_mem_data(bio.get(), &data));
  return {data, bytes};
}

std::string pem_of(X509* certificate) {
  return pem([=](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

std::string pem_of(EVP_PKEY* key) {
  return pem([=](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

}  // namespace

TempFolder::TempFolder() {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("sidereal_{:08x}", std::random_device()());
  std::filesystem::create_directory(path);
  path_ = path.string();
}
TempFolder::~TempFolder() { std::filesystem::remove_all(path_); }
std::string TempFolder::path(const std::string& name) const { return path_ + "/" + name; }
std::string TempFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

class Authority::Impl {
 public:
  Key key = make_key();
  Certificate certificate;
};

Authority::Authority(const std::string& name) : impl_(std::make_unique<Impl>()) {
  impl_->certificate = make_certificate(name, impl_->key.get(), nullptr, 3600);
  X509_sign(impl_->certificate.get(), impl_->key.get(), EVP_sha256());
}
Authority::~Authority() = default;

SecurityOptions Authority::issue(const TempFolder& folder, const std::string& name,
                                 const std::string& ip, int seconds) const {
  const Key key = make_key();
  const Certificate made = make_certificate(name, key.get(), impl_->certificate.get(), seconds);
  extend(made.get(), NID_subject_alt_name, "IP:" + ip);
  EXPECT_GT(X509_sign(made.get(), impl_->key.get(), EVP_sha256()), 0);
  return {.certificate_file = folder.write(name + ".pem", pem_of(made.get())),
          .key_file = folder.write(name + ".key", pem_of(key.get())),
          .ca_file = folder.write(name + ".ca", pem_of(impl_->certificate.get()))};
}

}  // namespace sidereal::security
