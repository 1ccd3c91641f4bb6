#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/security/credentials.h"

namespace grpc {
class ServerBuilder;
}  // namespace grpc

namespace sidereal::security {

/// How a listener treats those who connect.
struct ListenerOptions {
  int first_bytes_ms_max = 5000;  ///< To say something that gRPC speaks (milliseconds).
  int handshake_ms_max = 10000;   ///< To prove who they are after that (milliseconds).
  int unproved_max = 512;         ///< Connections at each of these two stages at once; those of
                                  ///< one host take three quarters of that at most.
  int calls_max = 6144;           ///< Calls that gRPC has to do at once, cancelled ones too,
  int calls_of_one_max = 1536;    ///< and those of one connection whose calls were mostly not
                                  ///< answered lately: beyond, connections are closed.
  int calm_ms = 1000;             ///< New connections of the host of such a one wait this long.
};

/// What happened to connections since the listener started. Each counter only grows.
struct ListenerCounters {
  uint64_t accepted = 0;         ///< By the socket, whatever became of them.
  uint64_t admitted = 0;         ///< Handed to gRPC and, where there is TLS, proved by it.
  uint64_t gone = 0;             ///< Left before they had said enough to judge; without TLS,
                                 ///< also those that left without a call.
  uint64_t refused_garbage = 0;  ///< Neither TLS nor HTTP/2, whichever the server speaks; without
                                 ///< TLS, also those that gRPC ended before a call.
  uint64_t refused_certificate = 0;  ///< Began TLS and proved nothing: no certificate, a wrong one,
                                     ///< another protocol, silence.
  uint64_t idle_closed = 0;          ///< Said too little for too long.
  uint64_t over_limit = 0;           ///< Closed because too many others had not proved themselves.
  uint64_t flood = 0;                ///< Closed because of more calls than can be borne.
};

/// The socket of a gRPC server, which judges the first bytes of a connection before gRPC sees it.
///
/// gRPC neither says how many peers it refused, nor bounds those who connect and wait. So
/// connections are accepted here: random bytes, plain HTTP and silence end here, and only what
/// begins like TLS (or, without it, like HTTP/2) becomes gRPC's. A second descriptor then tells
/// when gRPC closes a connection that has not proved itself (without TLS: made a call); one that
/// has is let go. With a full
/// stage, the oldest connection that is silent, or has said no more than the hello of TLS, makes
/// room for a new one: honest peers, who go on at once, get in. A host may not take all room.
///
/// Calls that come faster than gRPC ends them end their connection too (see FloodWatch).
///
/// Lifecycle: create() binds; attach() before ServerBuilder::BuildAndStart(), start() after it;
///            stop() before grpc::Server::Shutdown(). Connections made before start() wait.
/// Thread:    any; it has one thread of its own.
class Listener {
 public:
  /// Listens at `address`, "host:port"; port 0: the system chooses.
  /// Errors: those of check_listen(); kAlreadyExists for a port in use.
  static Result<std::unique_ptr<Listener>> create(const std::string& address,
                                                  std::shared_ptr<const Credentials> credentials,
                                                  const ListenerOptions& options = {});
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// "127.0.0.1:41234": the host as it was given, and the port in use.
  [[nodiscard]] const std::string& address() const;
  /// Makes the server that `builder` builds take its connections from here, and uses its creators
  /// of interceptors. Once.
  void attach(grpc::ServerBuilder* builder);
  /// Begins to accept.
  Status start();
  /// Closes the port and what was not yet handed to gRPC. Idempotent.
  void stop();

  /// refused_certificate and admitted lag while peers prove themselves: at most handshake_ms_max.
  [[nodiscard]] ListenerCounters counters() const;

 private:
  class Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// gRPC writes a line for every handshake that fails, which lets unauthenticated peers fill a disk:
/// from now on its errors become lines of this process's log, without those of handshakes, which a
/// Listener counts and reports at most once in 10 s. For programs' main(), not for libraries.
void log_less_of_grpc();

}  // namespace sidereal::security
