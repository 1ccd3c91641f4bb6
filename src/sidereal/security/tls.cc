#include "sidereal/security/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <utility>

#include "sidereal/security/credentials.h"
#include "sidereal/security/openssl.h"
#include "sidereal/security/tls_stream.h"

namespace sidereal::security {

namespace {

constexpr size_t kReadAheadBytes = 64 << 10;

Status library_error(const char* what) {
  ERR_clear_error();
  return base::internal("OpenSSL could not {}; is it older than 3.0, or restricted (FIPS)?", what);
}

int no_pass_phrase(char*, int, int, void*) { return -1; }

Certificate read_certificate(BIO* bio) {
  return Certificate(PEM_read_bio_X509(bio, nullptr, no_pass_phrase, nullptr));
}

/// In the place of a chain: exactly the cluster's own certificate. That the peer has its key is
/// what the handshake itself proves.
int compare_certificate(X509_STORE_CTX* context, void* expected) {
  const X509* const shown = X509_STORE_CTX_get0_cert(context);
  if (shown != nullptr && X509_cmp(shown, static_cast<const X509*>(expected)) == 0) return 1;
  X509_STORE_CTX_set_error(context, X509_V_ERR_CERT_REJECTED);
  return 0;
}

bool names_host(SSL* ssl, const std::string& host) {
  X509_VERIFY_PARAM* const parameters = SSL_get0_param(ssl);
  if (X509_VERIFY_PARAM_set1_ip_asc(parameters, host.c_str()) == 1) return true;
  ERR_clear_error();
  return X509_VERIFY_PARAM_set1_host(parameters, host.data(), host.size()) == 1;
}

}  // namespace

class Tls::Impl {
 public:
  Status load(const TlsMaterial& material) {
    compares_ = material.compares;
    method_ = TlsStream::make_method();
    if (method_ == nullptr) return library_error("make a stream");
    for (SslContext* context : {&server_, &client_}) {
      context->reset(SSL_CTX_new(context == &server_ ? TLS_server_method() : TLS_client_method()));
      SSL_CTX* const ctx = context->get();
      if (ctx == nullptr || SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1) {
        return library_error("set up TLS 1.3");
      }
      SR_RETURN_IF_ERROR(set_up(ctx, material));
    }
    return {};
  }

  Result<std::unique_ptr<sys::Stream>> wrap(std::unique_ptr<sys::Stream> inner,
                                            const std::string* host) const {
    Ssl ssl(SSL_new(host == nullptr ? server_.get() : client_.get()));
    if (ssl == nullptr) return base::resource_exhausted("there is no memory for a connection");
    if (host == nullptr) {
      SSL_set_accept_state(ssl.get());
    } else {
      SSL_set_connect_state(ssl.get());
      if (!compares_ && !names_host(ssl.get(), *host)) {
        return base::invalid_argument("'{}' cannot be the name of a host", *host);
      }
    }
    auto stream = std::make_unique<TlsStream>(std::move(ssl), std::move(inner), host == nullptr);
    if (!stream->attach(method_.get())) {
      return base::resource_exhausted("there is no memory for a connection");
    }
    return stream;
  }

 private:
  Status set_up(SSL_CTX* ctx, const TlsMaterial& material) {
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, kReadAheadBytes);
    // The fastest first.
    SSL_CTX_set_ciphersuites(ctx,
                             "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                             "TLS_CHACHA20_POLY1305_SHA256");
    const Bio own = reader_of(material.certificate);
    Certificate certificate = read_certificate(own.get());
    const Bio secret = reader_of(material.private_key);
    const Key key(PEM_read_bio_PrivateKey(secret.get(), nullptr, no_pass_phrase, nullptr));
    if (certificate == nullptr || key == nullptr ||
        SSL_CTX_use_certificate(ctx, certificate.get()) != 1 ||
        SSL_CTX_use_PrivateKey(ctx, key.get()) != 1) {
      return library_error("use the certificate and its key");
    }
    // Those between it and the authority.
    while (const Certificate between = read_certificate(own.get())) {
      if (SSL_CTX_add1_chain_cert(ctx, between.get()) != 1) return library_error("use a chain");
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    if (own_ == nullptr) own_ = std::move(certificate);
    if (compares_) {
      SSL_CTX_set_cert_verify_callback(ctx, compare_certificate, own_.get());
    } else {
      const Bio authority = reader_of(material.ca);
      while (const Certificate trusted = read_certificate(authority.get())) {
        if (X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), trusted.get()) != 1) {
          return library_error("use the authority's certificate");
        }
      }
    }
    ERR_clear_error();  // The end of the text is none.
    return {};
  }

  bool compares_ = false;
  BioMethod method_;
  Certificate own_;
  SslContext server_;
  SslContext client_;
};

Tls::Tls(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tls::~Tls() = default;

Result<std::shared_ptr<const Tls>> Tls::create(const Credentials& credentials) {
  if (!credentials.proves_peers()) {
    return base::failed_precondition("without a secret or certificates there is no TLS");
  }
  auto impl = std::make_unique<Impl>();
  SR_RETURN_IF_ERROR(impl->load(credentials.tls_material()));
  return std::shared_ptr<const Tls>(new Tls(std::move(impl)));
}

Result<std::unique_ptr<sys::Stream>> Tls::serve(std::unique_ptr<sys::Stream> stream) const {
  return impl_->wrap(std::move(stream), nullptr);
}

Result<std::unique_ptr<sys::Stream>> Tls::connect(std::unique_ptr<sys::Stream> stream,
                                                  const std::string& host) const {
  return impl_->wrap(std::move(stream), &host);
}

}  // namespace sidereal::security
