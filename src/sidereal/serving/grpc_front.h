#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/security/credentials.h"
#include "sidereal/serving/histogram.h"
#include "sidereal/serving/signature.h"

namespace sidereal::serving {

struct GrpcFrontOptions {
  std::string address;                      ///< "host:port"; port 0: the system chooses.
  security::SecurityOptions security;       ///< Certificates or nothing.
  size_t message_bytes = size_t{32} << 20;  ///< Of a request.
  int calls = 1024;                         ///< That are answered at a time.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< Until an answer is there.
};

/// A call that another thread answers, once. Gone without an answer it is kInternal. Thread: any.
class OtherCall {
 public:
  virtual ~OtherCall() = default;
  [[nodiscard]] virtual std::string_view method() const = 0;  ///< "Predict".
  [[nodiscard]] virtual std::string request() const = 0;
  /// `answer`: a message, or why there is none.
  virtual void reply(const Result<std::string>& answer) = 0;
};

/// The gRPC services of TensorFlow Serving for one model, and grpc.health.v1.
///
/// One thread reads calls, decodes and, where that is short, computes what has come, so that a
/// request passes through no other thread. What is not a prediction of the version that is served
/// goes to `others`, on a thread that may wait.
/// Thread: any.
class GrpcFront {
 public:
  using Others = std::function<void(std::unique_ptr<OtherCall>)>;

  /// Listens. Errors: those of security::Listener; kUnavailable when gRPC does not start.
  static Result<std::unique_ptr<GrpcFront>> start(const GrpcFrontOptions& options, Others others);
  /// As stop() at once.
  ~GrpcFront();
  GrpcFront(const GrpcFront&) = delete;
  GrpcFront& operator=(const GrpcFront&) = delete;

  [[nodiscard]] int port() const;
  /// From now on predictions are those of `version`; nullptr: `others` says why there are none.
  void serve(std::shared_ptr<const Version> version);
  /// What grpc.health.v1 says of a service.
  void tell_health(const std::string& service, bool is_serving);
  /// Takes no calls any more, and ends those that have not ended after `drain`. Idempotent.
  void stop(std::chrono::nanoseconds drain);

  /// Calls that were answered, by method and name of the code.
  [[nodiscard]] std::map<std::pair<std::string, std::string>, uint64_t> answered() const;
  /// From a call that has come to its answer.
  [[nodiscard]] const Histogram& seconds() const;

 private:
  class Impl;
  explicit GrpcFront(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::serving
