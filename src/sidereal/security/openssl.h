#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

/// Owners of OpenSSL's objects. For .cc files of this module.
namespace sidereal::security {

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* what) const { Free(what); }
};
template <class T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Freed<T, Free>>;

inline void free_bio(BIO* bio) { BIO_free_all(bio); }

using Bio = Owned<BIO, free_bio>;
using BioMethod = Owned<BIO_METHOD, BIO_meth_free>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Certificate = Owned<X509, X509_free>;
using Ssl = Owned<SSL, SSL_free>;
using SslContext = Owned<SSL_CTX, SSL_CTX_free>;

/// Reads PEM text; shows the memory of `text`.
inline Bio reader_of(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

}  // namespace sidereal::security
