#pragma once

#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/sys/network.h"

namespace sidereal::security {

class Credentials;

/// Mutual TLS 1.3 on top of streams, for connections that are not gRPC's; peers are judged by the
/// same rules (see Credentials). Sessions are not resumed and nothing is sent before both sides
/// have proved themselves, so that recorded bytes are of no use.
///
/// The streams it makes do not block. Stream::connected() shakes hands; errors are kUnauthenticated
/// (a certificate is missing or refused, on either side), kDataLoss (no TLS), kUnavailable.
/// Thread: any; each stream one at a time.
class Tls {
 public:
  /// kFailedPrecondition for credentials that prove nothing.
  static Result<std::shared_ptr<const Tls>> create(const Credentials& credentials);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// The server's side of an accepted connection.
  [[nodiscard]] Result<std::unique_ptr<sys::Stream>> serve(
      std::unique_ptr<sys::Stream> stream) const;
  /// The client's side. `host`: a name or number; with certificates of an authority the server's
  /// must name it.
  [[nodiscard]] Result<std::unique_ptr<sys::Stream>> connect(std::unique_ptr<sys::Stream> stream,
                                                             const std::string& host) const;

 private:
  class Impl;
  explicit Tls(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::security
