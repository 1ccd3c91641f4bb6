#include "sidereal/security/credentials.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <fstream>
#include <utility>
#include <vector>

#include "sidereal/security/cluster_key.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::security {

namespace {

namespace tls = grpc::experimental;

constexpr size_t kFileBytesMax = 1 << 20;
constexpr const char* kClusterName = "cluster.sidereal";

enum class Kind { kInsecure, kSecret, kTls };

Result<std::string> read_file(const std::string& path, const char* what) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return base::not_found("the {} cannot be read from {}; check the name and who may read it",
                           what, path);
  }
  const auto bytes = static_cast<size_t>(file.gcount());
  if (bytes > kFileBytesMax) {
    return base::invalid_argument("{} is larger than 1 MiB: it cannot be the {}", path, what);
  }
  std::string read = text.substr(0, bytes);
  wipe(&text);
  return read;
}

Result<Kind> kind_of(const SecurityOptions& options) {
  const bool secret = !options.secret.empty() || !options.secret_file.empty();
  const int files = static_cast<int>(!options.certificate_file.empty()) +
                    static_cast<int>(!options.key_file.empty()) +
                    static_cast<int>(!options.ca_file.empty());
  if (!options.secret.empty() && !options.secret_file.empty()) {
    return base::invalid_argument("a secret and a file with one are given; give one of the two");
  }
  if (files != 0 && files != 3) {
    return base::invalid_argument(
        "certificates need three files: the certificate, its key, and the authority's certificate");
  }
  if (secret && files != 0) {
    return base::invalid_argument("a secret and certificates are given; give one of the two");
  }
  if (options.insecure && (secret || files != 0)) {
    return base::invalid_argument("insecure is asked for together with a secret or certificates");
  }
  return secret ? Kind::kSecret : files != 0 ? Kind::kTls : Kind::kInsecure;
}

/// Accepts one certificate, or, when there is none to compare with, what gRPC itself has verified.
/// Runs after the handshake: the peer has proved that it holds the certificate's key.
class Verifier final : public tls::ExternalCertificateVerifier {
 public:
  Verifier(std::string certificate, std::vector<std::shared_ptr<PeerCounts>> counts)
      : certificate_(std::move(certificate)), counts_(std::move(counts)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* sync_status) override {
    const grpc::string_ref shown = request->peer_cert();
    const bool accepted =
        certificate_.empty() || std::string_view(shown.data(), shown.size()) == certificate_;
    for (const auto& counts : counts_) {
      (accepted ? counts->verified : counts->refused).fetch_add(1, std::memory_order_relaxed);
    }
    *sync_status = accepted ? grpc::Status::OK
                            : grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                           "the peer was started with another cluster secret");
    return true;
  }

  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string certificate_;
  const std::vector<std::shared_ptr<PeerCounts>> counts_;
};

}  // namespace

class Credentials::Impl {
 public:
  ~Impl() { wipe(&key_.private_key); }

  Status load(const SecurityOptions& options) {
    SR_ASSIGN_OR_RETURN(kind_, kind_of(options));
    insecure_ = options.insecure;
    if (kind_ == Kind::kSecret) return load_secret(options);
    if (kind_ == Kind::kTls) return load_certificates(options);
    return {};
  }

  [[nodiscard]] std::shared_ptr<tls::CertificateProviderInterface> provider() const {
    return std::make_shared<tls::StaticDataCertificateProvider>(
        ca_, std::vector<tls::IdentityKeyCertPair>{{key_.private_key, key_.certificate}});
  }

  /// What a certificate must equal; "" when an authority answers for it.
  [[nodiscard]] std::string expected() const {
    return kind_ == Kind::kSecret ? key_.certificate : std::string();
  }

  Kind kind_ = Kind::kInsecure;
  bool insecure_ = false;
  ClusterKey key_;
  std::string ca_;
  std::shared_ptr<PeerCounts> counts_ = std::make_shared<PeerCounts>();

 private:
  Status load_secret(const SecurityOptions& options) {
    std::string secret = options.secret;
    if (secret.empty()) {
      SR_ASSIGN_OR_RETURN(secret, read_file(options.secret_file, "cluster secret"));
      while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) {
        secret.pop_back();
      }
    }
    Result<ClusterKey> key = derive_cluster_key(secret);
    wipe(&secret);
    if (!key.ok()) {
      return options.secret_file.empty() ? key.status()
                                         : base::with_context(key.status(), options.secret_file);
    }
    key_ = *std::move(key);
    ca_ = key_.certificate;
    return {};
  }

  Status load_certificates(const SecurityOptions& options) {
    CertificateFiles files{.certificate_file = options.certificate_file,
                           .key_file = options.key_file,
                           .ca_file = options.ca_file};
    SR_ASSIGN_OR_RETURN(files.certificate, read_file(files.certificate_file, "certificate"));
    SR_ASSIGN_OR_RETURN(files.key, read_file(files.key_file, "private key"));
    SR_ASSIGN_OR_RETURN(files.ca, read_file(files.ca_file, "authority's certificate"));
    Status checked = check_certificates(files);
    if (checked.ok()) {
      key_ = {files.key, files.certificate};
      ca_ = files.ca;
    }
    wipe(&files.key);
    return checked;
  }
};

Credentials::Credentials(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Credentials::~Credentials() = default;

Result<std::shared_ptr<const Credentials>> Credentials::create(const SecurityOptions& options) {
  auto impl = std::make_unique<Impl>();
  SR_RETURN_IF_ERROR(impl->load(options));
  return std::shared_ptr<const Credentials>(new Credentials(std::move(impl)));
}

std::shared_ptr<grpc::ServerCredentials> Credentials::server(
    std::shared_ptr<PeerCounts> counts) const {
  if (impl_->kind_ == Kind::kInsecure) return grpc::InsecureServerCredentials();
  std::vector<std::shared_ptr<PeerCounts>> all = {impl_->counts_};
  if (counts != nullptr) all.push_back(std::move(counts));
  tls::TlsServerCredentialsOptions options(impl_->provider());
  if (impl_->kind_ == Kind::kTls) options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  // A cluster's own certificate is compared byte by byte, which is more than verifying a chain.
  options.set_cert_request_type(
      impl_->kind_ == Kind::kTls ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                 : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<Verifier>(impl_->expected(), std::move(all)));
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::channel() const {
  if (impl_->kind_ == Kind::kInsecure) return grpc::InsecureChannelCredentials();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(impl_->provider());
  // With a secret too, where they are not used: gRPC would look for those of the machine, and
  // connect to no peer where it has none, as in a container.
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  if (impl_->kind_ == Kind::kSecret) {
    options.set_verify_server_certs(false);
    options.set_check_call_host(false);
    options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<Verifier>(
        impl_->expected(), std::vector<std::shared_ptr<PeerCounts>>()));
  }
  return tls::TlsCredentials(options);
}

void Credentials::channel_arguments(grpc::ChannelArguments* arguments) const {
  if (impl_->kind_ == Kind::kSecret) arguments->SetSslTargetNameOverride(kClusterName);
}

const char* Credentials::kind() const {
  if (impl_->kind_ == Kind::kSecret) return "secret";
  return impl_->kind_ == Kind::kTls ? "tls" : "insecure";
}

bool Credentials::proves_peers() const { return impl_->kind_ != Kind::kInsecure; }

bool Credentials::admits_unauthenticated() const { return impl_->insecure_; }

uint64_t Credentials::refused() const {
  return impl_->counts_->refused.load(std::memory_order_relaxed);
}

TlsMaterial Credentials::tls_material() const {
  return {impl_->key_.private_key, impl_->key_.certificate, impl_->ca_,
          impl_->kind_ == Kind::kSecret};
}

Status check_listen(const sys::Address& resolved, const std::string& asked,
                    const Credentials* credentials) {
  const bool is_open = credentials != nullptr &&
                       (credentials->proves_peers() || credentials->admits_unauthenticated());
  if (resolved.is_loopback() || is_open) return {};
  return base::failed_precondition(
      "{} can be reached from other machines, and nothing keeps unauthenticated peers out: give "
      "all members of "
      "the cluster the same secret (a file named in SIDEREAL_SECRET_FILE or by --secret-file) or "
      "certificates, listen on 127.0.0.1, or say insecure if everybody who can connect may",
      asked);
}

Status check_listen(const std::string& address, const Credentials& credentials) {
  SR_ASSIGN_OR_RETURN(const sys::Address asked, sys::Address::parse(address));
  SR_ASSIGN_OR_RETURN(const sys::Address found, sys::posix::create_network()->resolve(asked));
  return check_listen(found, address, &credentials);
}

}  // namespace sidereal::security
