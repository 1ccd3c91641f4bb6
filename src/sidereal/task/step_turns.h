#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "sidereal/base/ref_counted.h"

/// The order of the steps that a loop has in flight. Internal to task.
namespace sidereal::task {

/// Lets the steps of one loop on one lane compute one after another. A step has its turn when those
/// before it have sent all their calls, or have ended, and when as many steps as may compute at
/// once have sent what they send before their first wait. Until then it goes no further than its
/// own first wait, whether or not the answer is there; were it to go on, what reaches other tasks
/// first would depend on how fast they are, and results with it. Steps without order have their
/// turn at once, and their time is counted.
/// Thread: the lane.
class StepTurns final : public base::RefCounted {
 public:
  /// `at_once`: steps that compute at once. `on_pass` is called when a step has had its turn, from
  /// within the step.
  StepTurns(bool in_order, size_t at_once, std::function<void()> on_pass)
      : in_order_(in_order), at_once_(at_once), on_pass_(std::move(on_pass)) {}

  /// Step `step` is going to begin, the last one so far.
  void add(uint64_t step) { steps_.push_back({step, false}); }
  /// No more steps begin: those that are there do not wait for others.
  void add_no_more() {
    no_more_ = true;
    tell_turn();
  }
  /// Steps that have not had their turn.
  [[nodiscard]] size_t size() const { return steps_.size(); }
  /// Whether the step may compute: it has its turn, or has had it.
  [[nodiscard]] bool is_turn_of(uint64_t step) const {
    if (!in_order_) return true;
    const auto at = find(step);
    return at == steps_.end() || (at == steps_.begin() && is_open());
  }
  /// The step is blocked. `wake` lets a step go on that is blocked, when its turn begins.
  using Wake = std::function<void(uint64_t step)>;
  void blocked(uint64_t step, const Wake& wake) {
    const auto at = find(step);
    if (!in_order_ || at == steps_.end() || at->waits) return;
    if (wake_ == nullptr) wake_ = wake;
    steps_[static_cast<size_t>(at - steps_.begin())].waits = true;
    tell_turn();
  }
  /// The step has had its turn. Steps without order: it has ended.
  void pass(uint64_t step) {
    const auto at = find(step);
    if (at == steps_.end()) return;
    steps_.erase(at);
    if (on_pass_) on_pass_();
    tell_turn();
  }
  /// Those that hear of it are gone.
  void forget() {
    on_pass_ = nullptr;
    wake_ = nullptr;
  }
  [[nodiscard]] bool in_order() const { return in_order_; }

  /// Time that the steps' parts on the lane have computed.
  void add_computed(int64_t ns) { computed_ns_ += ns; }
  [[nodiscard]] int64_t computed_ns() const { return computed_ns_; }

 private:
  struct Step {
    uint64_t number = 0;
    bool waits = false;  ///< It has come to its first wait.
  };

  [[nodiscard]] std::vector<Step>::const_iterator find(uint64_t step) const {
    return std::find_if(steps_.begin(), steps_.end(),
                        [step](const Step& one) { return one.number == step; });
  }
  /// Whether the first step may compute.
  [[nodiscard]] bool is_open() const {
    return (no_more_ || steps_.size() >= at_once_) &&
           std::all_of(steps_.begin() + 1, steps_.end(), [](const Step& one) { return one.waits; });
  }
  void tell_turn() {
    if (in_order_ && wake_ && !steps_.empty() && is_open()) wake_(steps_.front().number);
  }

  const bool in_order_;
  const size_t at_once_;
  std::function<void()> on_pass_;
  Wake wake_;
  std::vector<Step> steps_;  // Oldest first.
  bool no_more_ = false;
  int64_t computed_ns_ = 0;
};

}  // namespace sidereal::task
