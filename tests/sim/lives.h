#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sidereal/sys/sim/world.h"

/// What a simulation asks of its parameter servers and workers, whatever they are made of.
namespace sidereal::sim {

/// The most that connections of one lane had in memory at a time.
struct Memory {
  uint64_t receive_bytes_max = 0;
  uint64_t send_bytes_max = 0;

  void add(const Memory& other) {
    receive_bytes_max = std::max(receive_bytes_max, other.receive_bytes_max);
    send_bytes_max = std::max(send_bytes_max, other.send_bytes_max);
  }
};

/// A parameter server from its start to its end. Destroyed when its nodes have been killed.
class PsLife {
 public:
  virtual ~PsLife() = default;
  /// Its lanes.
  [[nodiscard]] virtual std::vector<sys::sim::Node*> nodes() const = 0;
  /// Complains of memory that is out of bounds.
  virtual void check_memory() = 0;
  /// Nothing is being received or sent, nor runs.
  virtual bool is_idle() = 0;
  /// Complains of what should be gone when nobody calls any more.
  virtual void check_idle() = 0;
  [[nodiscard]] virtual Memory memory() const = 0;
};

/// How calls have ended; of real tasks: steps.
struct Outcomes {
  int64_t ok = 0;
  int64_t refused = 0;  ///< by the handler
  int64_t late = 0;     ///< past their deadline
  int64_t cancelled = 0;
  int64_t lost = 0;     ///< with their connection
  int64_t unknown = 0;  ///< nobody knows whether they were done
  int64_t no_room = 0;
  int64_t resumed = 0;  ///< connections that went on

  void add(const Outcomes& other);
};

/// A worker from its start to its end. Destroyed when its node has been killed.
class WorkerLife {
 public:
  virtual ~WorkerLife() = default;
  [[nodiscard]] virtual sys::sim::Node* node() const = 0;
  /// Begins no more calls.
  virtual void quiet() = 0;
  /// The process stood still: its deadlines are noticed late.
  virtual void stalled(int64_t ns) = 0;
  /// Nothing of it is under way.
  virtual bool is_idle() = 0;
  /// Complains of calls that have not ended.
  virtual void check_idle() = 0;
  [[nodiscard]] virtual Outcomes outcomes() const = 0;
  /// Pushes that went well since the last call of this.
  virtual int64_t take_done() = 0;
};

}  // namespace sidereal::sim
