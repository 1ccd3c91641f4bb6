#pragma once

#include <memory>
#include <string>

#include "sidereal/security/credentials.h"
#include "sidereal/security/listener.h"

/// For tests: a gRPC server behind a Listener that answers what it is sent, and a client of it.
namespace sidereal::security {

class EchoServer {
 public:
  explicit EchoServer(std::shared_ptr<const Credentials> credentials,
                      const ListenerOptions& options = {},
                      const std::string& address = "127.0.0.1:0");
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  [[nodiscard]] Listener& listener();
  /// "127.0.0.1:41234".
  [[nodiscard]] std::string address() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Sends "hello" on a new connection: ok, or how the call failed.
Status say_hello(const std::string& address, const Credentials& credentials);

/// As say_hello(), by somebody who speaks TLS, looks at no certificate and has none.
Status say_hello_without_certificate(const std::string& address);

/// Sends `bytes` on a plain connection and waits until the other side closes it.
void send_and_wait_for_end(const std::string& address, const std::string& bytes);

}  // namespace sidereal::security
