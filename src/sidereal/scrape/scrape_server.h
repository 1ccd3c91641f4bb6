#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/security/credentials.h"

namespace sidereal::scrape {

struct ScrapeOptions {
  std::string listen = {};  ///< "host:port"; port 0: any free one.
  std::shared_ptr<const security::Credentials> credentials = {};
  /// What GET /metrics answers; called on the server's thread.
  std::function<std::string()> text = {};
  int connections_max = 16;  ///< At once; beyond, the oldest one goes.
  int patience_ms = 10'000;  ///< From a connection to the end of its answer.
};

/// Answers Prometheus: GET /metrics over HTTP, one request a connection. With a secret or
/// certificates it is HTTPS, and who asks must prove to be a member, as everywhere in the cluster;
/// without, it listens on loopback only, unless `insecure` was said.
///
/// Lifecycle: create() listens; start() answers; stop(), which the destructor calls, closes all.
/// Thread:    any; it has one thread of its own.
/// Limits:    connections_max connections, each with kRequestBytesMax of request and one answer.
class ScrapeServer {
 public:
  static constexpr size_t kRequestBytesMax = 8192;

  /// Errors: those of security::check_listen(); kAlreadyExists for a port in use.
  static Result<std::unique_ptr<ScrapeServer>> create(ScrapeOptions options);
  ~ScrapeServer();
  ScrapeServer(const ScrapeServer&) = delete;
  ScrapeServer& operator=(const ScrapeServer&) = delete;

  /// Begins to answer. Once.
  Status start();
  /// "127.0.0.1:41234", with the port in use.
  [[nodiscard]] const std::string& address() const;
  /// How often it answered and refused.
  [[nodiscard]] const metrics::Figures& figures() const;
  /// Idempotent.
  void stop();

 private:
  class Impl;
  explicit ScrapeServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::scrape
