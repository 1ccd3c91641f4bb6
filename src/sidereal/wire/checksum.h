#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sidereal::wire {

/// XXH3 with 64 bits and seed 0 of bytes that come in pieces. Resource. Thread: one at a time.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(const void* data, size_t bytes);
  /// Of all bytes since the last clear().
  [[nodiscard]] uint64_t value() const;
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sidereal::wire
