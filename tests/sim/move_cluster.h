#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/sim/late_copy.h"
#include "tests/sim/move_ps.h"

namespace sidereal::sim {

/// Parameter servers that die and come back, each with a synchronous standby on the next one, from
/// which it takes its variables: in the place of service::Standbys.
/// Thread: the world's.
class MoveCluster {
 public:
  explicit MoveCluster(const MoveContext& context);
  ~MoveCluster();
  MoveCluster(const MoveCluster&) = delete;
  MoveCluster& operator=(const MoveCluster&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(slots_.size()); }
  /// The life of a server, once it lets others in; or nullptr.
  [[nodiscard]] MovePs* ps(int index) const;
  /// Kills one, which comes back, if nothing that was answered goes with it: its standby has all,
  /// and is where one that comes back looks for it. False: not now.
  bool kill(int index);
  [[nodiscard]] LateCopy* standby(int index) const { return slots_[at(index)].standby.get(); }
  [[nodiscard]] int64_t deaths() const { return deaths_; }

  /// The simulation ends: before the cluster does, `fn` is called.
  void at_end(std::function<void()> fn) { at_end_.push_back(std::move(fn)); }
  /// Calls `fn` at another process, in a while.
  void send(std::function<void()> fn);
  /// The same on a life of a server, unless it has ended by then.
  void send(int index, uint64_t life, std::function<void(MovePs*)> fn);
  [[nodiscard]] sys::sim::Rng& random() { return rng_; }

 private:
  struct Slot {
    sys::sim::Host* host = nullptr;
    std::unique_ptr<MovePs> ps;  // nullptr: it is dead.
    bool is_let_in = false;
    std::unique_ptr<LateCopy> standby;  // Of it, on the next one; nullptr: that is dead.
  };
  static size_t at(int index) { return static_cast<size_t>(index); }
  [[nodiscard]] int next(int index) const { return (index + 1) % size(); }
  [[nodiscard]] int before(int index) const { return (index + size() - 1) % size(); }
  void start(int index);
  void fill(int index);
  /// Begins a standby of a server on the next one.
  void follow(int index);

  const MoveContext& context_;
  sys::sim::Rng rng_;
  const MovePrograms programs_;
  std::vector<Slot> slots_;
  int64_t deaths_ = 0;
  std::vector<std::function<void()>> at_end_;
};

}  // namespace sidereal::sim
