#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sidereal/base/check.h"

namespace sidereal::coord {

using ClosureId = uint64_t;  ///< 1, 2, ... in the order in which they were scheduled.

/// Training in step, of closures that contribute gradients instead of changing variables. At most
/// `size` of them begin in a step. When `quorum` have ended, variables change once by what was
/// contributed, and only then the next ones begin. Those beyond the quorum are spares, of which a
/// worker runs none that has begun another one in the step. What closures contribute that were
/// begun in an earlier step is dropped, as it has the number of that. Source:
/// tf.compat.v1.train.SyncReplicasOptimizer; Chen et al., Revisiting Distributed Synchronous SGD,
/// 2016.
class Steps {
 public:
  enum class Does : uint8_t {
    kRuns,     ///< Closures may begin.
    kUpdates,  ///< Variables change by what is contributed.
    kForgets,  ///< What was contributed to a step that did not end is taken back.
  };

  /// `size` 0: none contribute. `quorum`: 1 to `size`.
  Steps(int workers, int64_t size, int64_t quorum)
      : size_(size), quorum_(quorum), began_(size == 0 ? 0 : static_cast<size_t>(workers)) {
    SR_CHECK(size == 0 || (quorum >= 1 && quorum <= size));
  }

  /// 1, 2, ...: what closures that begin now contribute to.
  [[nodiscard]] int64_t number() const { return number_; }
  [[nodiscard]] Does does() const { return does_; }
  [[nodiscard]] bool may_begin() const {
    return does_ == Does::kRuns && !must_forget() && running_ + contributed() < size_;
  }
  /// Nothing contributes before begin_forgetting(): there is something of a step that did not end.
  [[nodiscard]] bool must_forget() const { return does_ == Does::kRuns && is_spoilt_; }
  /// Closures that contributed to this step, the first first.
  [[nodiscard]] const std::vector<ClosureId>& ended() const { return ended_; }
  /// Whether nothing of it runs, and something has been contributed.
  [[nodiscard]] bool is_resting() const {
    return does_ == Does::kRuns && running_ == 0 && !ended_.empty();
  }
  [[nodiscard]] bool is_complete() const {
    return does_ == Does::kRuns && !ended_.empty() && contributed() >= quorum_;
  }

  /// Of a closure while may_begin().
  [[nodiscard]] bool may_begin_on(int worker) const {
    return running_ + contributed() < quorum_ || began_[static_cast<size_t>(worker)] != number_;
  }

  void begins_on(int worker) {
    ++running_;
    began_[static_cast<size_t>(worker)] = number_;
  }
  /// A closure of this step has contributed.
  void ends(ClosureId closure) {
    --running_;
    ended_.push_back(closure);
  }
  /// One has failed, or was lost: there may be something of it, which it gives once.
  void fails() { --running_; }
  /// Something was contributed that is not to be used.
  void spoil() { is_spoilt_ = true; }

  void begin_update() { does_ = Does::kUpdates; }
  void begin_forgetting() { does_ = Does::kForgets; }
  /// After either: the next step, and what closures ended in this one.
  std::vector<ClosureId> next() {
    if (std::exchange(does_, Does::kRuns) == Does::kForgets) {
      is_spoilt_ = false;
      return {};
    }
    return leave();
  }
  /// Gives this step up: what closures ended in it.
  std::vector<ClosureId> leave() {
    ++number_;
    running_ = 0;
    return std::exchange(ended_, {});
  }

 private:
  [[nodiscard]] int64_t contributed() const { return static_cast<int64_t>(ended_.size()); }

  const int64_t size_;
  const int64_t quorum_;
  int64_t number_ = 1;
  Does does_ = Does::kRuns;
  int64_t running_ = 0;         // Of this step.
  std::vector<int64_t> began_;  // By worker: the latest step in which it began one.
  std::vector<ClosureId> ended_;
  bool is_spoilt_ = false;
};

}  // namespace sidereal::coord
