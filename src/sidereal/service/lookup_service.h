#pragma once

#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/security/credentials.h"

namespace sidereal::service {

class Follower;

/// Answers look-ups in a follower's tables over gRPC (lookup.proto).
/// Thread: any.
class LookupServer {
 public:
  /// Listens at `address`, "host:port"; port 0: the system chooses. Borrows `follower`. Errors:
  /// those of security::Credentials and security::Listener: without a secret or certificates it
  /// listens on this machine's loopback only.
  static Result<std::unique_ptr<LookupServer>> start(const Follower* follower,
                                                     const std::string& address,
                                                     const security::SecurityOptions& security);
  /// Ends calls that are under way.
  ~LookupServer();
  LookupServer(const LookupServer&) = delete;
  LookupServer& operator=(const LookupServer&) = delete;

  /// "127.0.0.1:41234": the host as it was given, and the port in use.
  [[nodiscard]] const std::string& address() const;

 private:
  class Impl;
  explicit LookupServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::service
