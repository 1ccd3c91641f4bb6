#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "sidereal/coord/scheduler.h"
#include "tests/sim/ledger.h"

/// What closures contribute to steps, as the accumulators of parameter servers have it, and what a
/// scheduler may make of it.
namespace sidereal::sim {

class Contributions {
 public:
  Contributions(const coord::SchedulerOptions& options, Ledger* ledger)
      : options_(options), ledger_(*ledger) {}

  // ---- What the scheduler does.

  /// A closure that contributes begins in a step.
  void begin(int worker, coord::ClosureId closure, int64_t step) {
    if (does_ != Does::kRuns) ledger_.complain("closure {} begins while a step ends", closure);
    if (step != step_) {
      ledger_.complain("closure {} begins in step {}, and step {} has not ended", closure, step,
                       step_);
    }
    if (!is_for(worker)) ledger_.complain("worker {} has two closures of a step", worker);
    began_[worker] = step_;
    leave(closure);
    running_.insert(closure);
    if (running_.size() + given_.size() > static_cast<size_t>(options_.step_size)) {
      ledger_.complain("step {} has more than {} closures", step, options_.step_size);
    }
  }
  /// `may_lack`: whether a step may end that has fewer closures than it takes.
  void end_step(int64_t step, std::span<const coord::ClosureId> closures, bool may_lack) {
    if (does_ != Does::kRuns || step != step_) ledger_.complain("step {} ends twice", step);
    does_ = Does::kUpdates;
    const bool is_complete = closures.size() >= static_cast<size_t>(options_.step_quorum);
    if (!is_complete && (!may_lack || !running_.empty())) {
      ledger_.complain("step {} ends with {} closures, and {} run", step, closures.size(),
                       running_.size());
    }
    if (closures.size() != given_.size()) {
      ledger_.complain("step {} ends with {} closures; {} have contributed", step, closures.size(),
                       given_.size());
    }
  }
  void forget(int64_t step) {
    if (does_ != Does::kRuns) ledger_.complain("step {} is forgotten while another ends", step);
    does_ = Does::kForgets;
    next_ = step;
  }

  // ---- What happens to it.

  /// A closure that began in `step` has come to its end on a worker, and is told of, or not.
  void arrive(coord::ClosureId closure, int64_t step) {
    if (step < there_) return;
    if (!used_.contains(closure)) kept_.insert(closure);
  }
  /// The scheduler is told that it has ended well. False: it must run again.
  [[nodiscard]] bool give(coord::ClosureId closure) {
    if (void_.erase(closure) > 0) return false;
    const bool is_of_step = running_.erase(closure) > 0;
    if (is_of_step) given_.insert(closure);
    // What comes while variables change may be too late.
    if (!is_of_step || is_updating()) late_.insert(closure);
    return true;
  }
  /// It is told that it has failed, or is lost.
  void leave(coord::ClosureId closure) {
    running_.erase(closure);
    void_.erase(closure);
    late_.erase(closure);
  }
  /// Parameter servers do what they are asked for: change variables, or drop what there is of steps
  /// before.
  void carry_out() {
    if (does_ == Does::kUpdates) used_.insert(kept_.begin(), kept_.end());
    there_ = does_ == Does::kUpdates ? step_ + 1 : next_;
    kept_.clear();
  }
  /// They have lost what they had.
  void lose() {
    kept_.clear();
    there_ = 0;
  }
  /// The scheduler is told that the step has ended, or has been forgotten: closures of it.
  std::set<coord::ClosureId> done(bool is_ok) {
    if (does_ == Does::kForgets) {
      does_ = Does::kRuns;
      if (is_ok) step_ = next_;
      return {};
    }
    does_ = Does::kRuns;
    if (is_ok) {
      ++step_;
    } else {
      void_.insert(running_.begin(), running_.end());
    }
    running_.clear();
    return give_out();
  }
  /// The scheduler gives the step up: what has contributed to it.
  std::set<coord::ClosureId> give_up() {
    void_.insert(running_.begin(), running_.end());
    running_.clear();
    return give_out();
  }
  /// All is cancelled.
  void cancel() {
    if (does_ == Does::kRuns) give_up();
  }
  [[nodiscard]] bool is_updating() const { return does_ == Does::kUpdates; }
  [[nodiscard]] bool is_at_rest() const { return does_ == Does::kRuns && given_.empty(); }
  /// Whether it lacks closures, and none runs.
  [[nodiscard]] bool is_resting() const {
    return does_ == Does::kRuns && running_.empty() && !given_.empty();
  }
  /// Whether what is to begin must wait for a step.
  [[nodiscard]] bool is_full() const {
    return does_ != Does::kRuns ||
           running_.size() + given_.size() >= static_cast<size_t>(options_.step_size);
  }
  /// Whether one that may begin may do so there.
  [[nodiscard]] bool is_for(int worker) const {
    const auto began = began_.find(worker);
    return running_.size() + given_.size() < static_cast<size_t>(options_.step_quorum) ||
           began == began_.end() || began->second != step_;
  }
  [[nodiscard]] bool has(coord::ClosureId closure) const { return given_.contains(closure); }

  /// A closure that contributes has a value.
  void check_value(coord::ClosureId closure) {
    if (late_.erase(closure) == 0 && !used_.contains(closure)) {
      ledger_.complain("closure {} has a value, and what it contributed is not used", closure);
    }
  }

 private:
  enum class Does : uint8_t { kRuns, kUpdates, kForgets };

  std::set<coord::ClosureId> give_out() { return std::exchange(given_, {}); }

  const coord::SchedulerOptions& options_;
  Ledger& ledger_;
  Does does_ = Does::kRuns;
  int64_t step_ = 1;                    ///< That closures are to begin in.
  int64_t next_ = 1;                    ///< After forget().
  std::map<int, int64_t> began_;        ///< By worker: the latest step.
  std::set<coord::ClosureId> running_;  ///< Of the step.
  std::set<coord::ClosureId> given_;    ///< Of it: told of.
  std::set<coord::ClosureId> void_;     ///< Of one that was given up.
  std::set<coord::ClosureId> late_;     ///< Told of when their step was over.
  // At parameter servers.
  int64_t there_ = 0;
  std::set<coord::ClosureId> kept_;
  std::set<coord::ClosureId> used_;
};

}  // namespace sidereal::sim
