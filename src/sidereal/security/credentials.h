#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/sys/address.h"

namespace grpc {
class ChannelArguments;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace sidereal::security {

/// How the members of a cluster know one another. One of: a secret, given as itself or as a file
/// (a newline at its end does not belong to it); three files of certificates, in PEM form; nothing,
/// which serves this machine only; nothing and `insecure`, which lets in whoever can connect.
struct SecurityOptions {
  std::string secret = {};       ///< At least 16 random bytes.
  std::string secret_file = {};  ///< File with the secret.
  std::string certificate_file =
      {};                     ///< This task's certificate, with those between it and the CA.
  std::string key_file = {};  ///< The private key of that certificate.
  std::string ca_file = {};   ///< The authority that signed the certificates of all members.
  bool insecure = false;      ///< Off loopback, too, everybody may connect.
};

/// What servers found out about peers. Counters only grow; relaxed order: each is read by itself.
struct PeerCounts {
  std::atomic<uint64_t> verified = 0;  ///< Showed a certificate that is accepted, and has its key.
  std::atomic<uint64_t> refused = 0;   ///< Showed a certificate that is not.
};

/// What TLS is made of, as PEM text; shows what Credentials holds.
struct TlsMaterial {
  const std::string& private_key;
  const std::string& certificate;  ///< Own, and those between it and the authority.
  const std::string& ca;           ///< Authorities that are trusted.
  bool compares;                   ///< Peers must show exactly this certificate.
};

/// What is needed for connections among members of one cluster: gRPC's, and others (tls.h).
///
/// With a secret, both sides derive the same key pair and certificate from it (see cluster_key.h),
/// and each accepts exactly this certificate: mutual TLS, in which the secret itself is never sent.
/// With certificates: mutual TLS; both sides want a certificate signed by the authority, and
/// clients that the server's names the host they asked for.
/// Neither the secret nor a private key is ever part of an error or a log line.
/// Thread: any.
class Credentials {
 public:
  /// Errors: kInvalidArgument for options that contradict one another, a secret of fewer than 16
  /// bytes, and files that hold something else; kNotFound for files that cannot be read.
  static Result<std::shared_ptr<const Credentials>> create(const SecurityOptions& options);
  ~Credentials();
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  /// For a server. What it learns of its peers is counted in `counts` too, unless that is null;
  /// nothing is counted without TLS.
  [[nodiscard]] std::shared_ptr<grpc::ServerCredentials> server(
      std::shared_ptr<PeerCounts> counts = nullptr) const;
  /// For a channel; use channel_arguments() as well.
  [[nodiscard]] std::shared_ptr<grpc::ChannelCredentials> channel() const;
  /// With a secret the name in the certificate is not the host's: sets the one to ask for.
  void channel_arguments(grpc::ChannelArguments* arguments) const;

  /// For Tls. Only with proves_peers().
  [[nodiscard]] TlsMaterial tls_material() const;

  /// "insecure", "secret" or "tls".
  [[nodiscard]] const char* kind() const;
  /// Whether connections are encrypted and peers must prove who they are.
  [[nodiscard]] bool proves_peers() const;
  /// Whether `insecure` was said in so many words.
  [[nodiscard]] bool admits_unauthenticated() const;
  /// How many peers showed servers a certificate that was refused. Peers that got less far are
  /// counted by Listener.
  [[nodiscard]] uint64_t refused() const;

 private:
  class Impl;
  explicit Credentials(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The same for an address that was resolved already; `asked` is how it was given, for the message.
/// `credentials` nullptr: there are none.
Status check_listen(const sys::Address& resolved, const std::string& asked,
                    const Credentials* credentials);
/// Whether a server may listen at `address` ("host:port"; resolved here, which may wait for the
/// name service): on loopback always, elsewhere with a secret or certificates, or when `insecure`
/// was said. kFailedPrecondition says how to go on; kInvalidArgument and kNotFound for addresses.
Status check_listen(const std::string& address, const Credentials& credentials);

}  // namespace sidereal::security
