#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/metrics/counter.h"

namespace sidereal::resources {

/// What was pushed to the variables of some lanes of a task, as it is said with each answer to a
/// push: the client that has the answer knows what would be lost with the task. Value type.
struct PushedSoFar {
  uint64_t life = 0;   ///< Of the start of the task: its incarnation.
  int lane = 0;        ///< Which of its lanes.
  int64_t number = 0;  ///< Of the latest push there, which only grows.
  int64_t pushes = 0;  ///< That variables still have in them.
  int64_t rows = 0;    ///< Of tables, the same.
};

/// Counts what is pushed to the variables of a task, by lanes; and knows its checkpoints that may
/// be written and not yet in place.
/// Thread: any.
class PushCounts : public std::enable_shared_from_this<PushCounts> {
 public:
  static constexpr int kLanesMax = 256;
  /// The counts, and the lane, of a thread. Value type.
  struct Here {
    PushCounts* counts;
    int lane;
  };
  /// Has what this thread pushes counted as that of a lane, as long as it lasts.
  class OnLane {
   public:
    OnLane(PushCounts* counts, int lane)
        : before_(std::exchange(here_, Here{.counts = counts, .lane = lane})) {}
    ~OnLane() { here_ = before_; }
    OnLane(const OnLane&) = delete;
    OnLane& operator=(const OnLane&) = delete;

   private:
    const Here before_;
  };
  /// `life`: the incarnation of the task.
  explicit PushCounts(uint64_t life) : life_(life) {}

  [[nodiscard]] uint64_t life() const { return life_; }

  /// What this thread's pushes are counted by, and as whose; nullptr: by nothing.
  static PushCounts* here() { return here_.counts; }
  static int lane_here() { return here_.lane; }
  /// A push by this thread, of `rows` rows of a table.
  static void add_here(int64_t rows) {
    if (here_.counts != nullptr) here_.counts->add(here_.lane, rows);
  }
  /// This thread was to make a change of a closure that has been made already.
  static void add_repeated_here() {
    if (here_.counts != nullptr) {
      here_.counts->lanes_[static_cast<size_t>(here_.lane)].repeated.add();
    }
  }
  /// How many of these there were, on all lanes.
  [[nodiscard]] int64_t repeated() const {
    int64_t out = 0;
    for (const OfLane& lane : lanes_) out += lane.repeated.value();
    return out;
  }
  /// A push to a variable of `lane`, of `rows` rows of a table. Thread: the lane.
  void add(int lane, int64_t rows) {
    OfLane& of = lanes_[static_cast<size_t>(lane)];
    of.pushes.add();
    of.rows.add(rows);
  }
  /// A variable of `lane` has so many less in it: it goes, or has other values.
  void drop(int lane, int64_t pushes, int64_t rows) {
    OfLane& of = lanes_[static_cast<size_t>(lane)];
    of.dropped_pushes.fetch_add(pushes, std::memory_order_relaxed);
    of.dropped_rows.fetch_add(rows, std::memory_order_relaxed);
  }
  [[nodiscard]] PushedSoFar read(int lane) const {
    const OfLane& of = lanes_[static_cast<size_t>(lane)];
    const int64_t number = of.pushes.value();
    return {.life = life_,
            .lane = lane,
            .number = number,
            .pushes = number - of.dropped_pushes.load(std::memory_order_relaxed),
            .rows = of.rows.value() - of.dropped_rows.load(std::memory_order_relaxed)};
  }

  /// The part of a checkpoint that this task has written.
  struct Written {
    uint64_t cut = 0;
    std::string prefix;
  };
  /// It is on the disk, and in place once the index of the checkpoint is.
  void wrote(Written written) {
    const std::lock_guard lock(mutex_);
    if (written_.size() >= kWrittenMax) written_.erase(written_.begin());
    written_.push_back(std::move(written));
  }
  /// Those of which is not known whether they are in place. The earliest first.
  [[nodiscard]] std::vector<Written> written() const {
    const std::lock_guard lock(mutex_);
    return written_;
  }
  /// The index of this prefix is in place, with `cuts`. What was written for it before the latest
  /// of them, and is not in it, was replaced before it was looked for, and is forgotten.
  void commit(const std::string& prefix, std::span<const uint64_t> cuts) {
    const std::lock_guard lock(mutex_);
    const auto is_in = [&](const Written& one) {
      return one.prefix == prefix && std::ranges::find(cuts, one.cut) != cuts.end();
    };
    const auto end = std::find_if(written_.rbegin(), written_.rend(), is_in).base();
    for (auto one = written_.begin(); one != end; ++one) {
      if (!is_in(*one)) continue;
      if (committed_.size() >= kWrittenMax) committed_.erase(committed_.begin());
      committed_.push_back(one->cut);
    }
    const auto left = std::remove_if(written_.begin(), end,
                                     [&](const Written& one) { return one.prefix == prefix; });
    written_.erase(left, end);
  }
  /// Cuts that are in place, the latest last; earlier ones are forgotten.
  [[nodiscard]] std::vector<uint64_t> committed() const {
    const std::lock_guard lock(mutex_);
    return committed_;
  }

 private:
  static constexpr size_t kWrittenMax = 16;
  inline static constinit thread_local Here here_ = {nullptr, 0};

  struct alignas(64) OfLane {
    metrics::Counter pushes;
    metrics::Counter rows;
    metrics::Counter repeated;
    std::atomic<int64_t> dropped_pushes = 0;
    std::atomic<int64_t> dropped_rows = 0;
  };

  const uint64_t life_;
  std::array<OfLane, kLanesMax> lanes_{};
  mutable std::mutex mutex_;
  std::vector<Written> written_;
  std::vector<uint64_t> committed_;
};

}  // namespace sidereal::resources
