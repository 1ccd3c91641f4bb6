#pragma once

#include <memory>
#include <string>
#include <vector>

#include "workers.h"

/// gRPC without an engine: the calls that a step of `grpc` makes, with as many bytes, answered by
/// nobody who computes. What is lost here at many workers is gRPC's.
namespace sidereal::bench {

/// The name of this among protocols.
inline constexpr const char* kAlone = "alone";

/// Bytes of a step. Value type.
struct AloneBytes {
  size_t ids = 0;   ///< To the ps,
  size_t rows = 0;  ///< from there, and to it, as gradients.
};

/// Either end. Thread: any.
class AloneEnd {
 public:
  /// Listens at `ports` free ports of loopback.
  static Result<std::unique_ptr<AloneEnd>> create(size_t ports, AloneBytes bytes);
  ~AloneEnd();
  AloneEnd(const AloneEnd&) = delete;
  AloneEnd& operator=(const AloneEnd&) = delete;

  [[nodiscard]] const std::vector<int>& ports() const;
  /// Worker `number`, of the ps at an address; the end is borrowed.
  std::unique_ptr<Worker> worker(Common* common, size_t number, const std::string& ps);

 private:
  class Impl;
  explicit AloneEnd(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::bench
