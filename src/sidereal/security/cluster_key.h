#pragma once

#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::security {

/// Bytes a cluster secret has at least.
inline constexpr size_t kSecretBytesMin = 16;

/// A private key and a certificate of it, both as PEM text. Value type; wipe() what is not needed.
struct ClusterKey {
  std::string private_key;
  std::string certificate;
};

/// A secret for a new cluster: 256 bits of the system's randomness, as text of 64 characters.
std::string random_secret();

/// The key pair of everybody who knows `secret`: Ed25519, its seed HKDF-SHA256 (RFC 5869) of the
/// secret, and a certificate signed by itself. Equal secrets give equal bytes on every machine.
/// A certificate is shown to whoever connects, so that guesses of the secret can be tried against
/// it: the secret must be random, not a word.
/// Errors: kInvalidArgument for a secret of fewer than kSecretBytesMin bytes.
Result<ClusterKey> derive_cluster_key(std::string_view secret);

/// Says what is wrong with a certificate, its private key and the authority's certificates, all PEM
/// text; the names of the files are for the message. kInvalidArgument: unreadable, or the key is
/// not that of the certificate.
struct CertificateFiles {
  std::string certificate_file = {};
  std::string certificate = {};
  std::string key_file = {};
  std::string key = {};
  std::string ca_file = {};
  std::string ca = {};
};
Status check_certificates(const CertificateFiles& files);

/// Overwrites `text` and empties it.
void wipe(std::string* text);

}  // namespace sidereal::security
