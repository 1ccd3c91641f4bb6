#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sidereal::coord {

/// Bounded staleness among workers that each run one closure at a time: what a closure changes is
/// computed from what it read when it began, so it misses what others end while it runs. A worker
/// that has ended more than `most` closures while one of another worker runs begins no more until
/// that has ended; so a closure misses at most `most` + 1 of each other worker.
/// Cost: O(workers) when a closure begins or ends, and as many squared counts.
class Staleness {
 public:
  /// Without `most` no worker waits for another one, and nothing is counted.
  Staleness(int workers, std::optional<int64_t> most) : most_(most) {
    if (!most.has_value()) return;
    const auto count = static_cast<size_t>(workers);
    runs_.resize(count);
    waits_for_.resize(count);
    missed_.assign(count, std::vector<int64_t>(count));
  }

  [[nodiscard]] bool may_begin(int worker) const {
    return !most_.has_value() || waits_for_[at(worker)] == 0;
  }
  void begins(int worker) {
    if (most_.has_value()) runs_[at(worker)] = true;
  }
  /// The closure has ended, in whatever way: others that run miss it.
  void ended(int worker) {
    if (!most_.has_value()) return;
    lost(worker);
    for (size_t other = 0; other < runs_.size(); ++other) {
      if (runs_[other] && ++missed_[other][at(worker)] == *most_ + 1) ++waits_for_[at(worker)];
    }
  }
  /// What it runs, if it does, is gone: nobody waits for that any more.
  void lost(int worker) {
    if (!most_.has_value()) return;
    runs_[at(worker)] = false;
    std::vector<int64_t>& missed = missed_[at(worker)];
    for (size_t other = 0; other < missed.size(); ++other) {
      if (missed[other] > *most_) --waits_for_[other];
    }
    std::ranges::fill(missed, 0);
  }

 private:
  static size_t at(int worker) { return static_cast<size_t>(worker); }

  const std::optional<int64_t> most_;
  std::vector<bool> runs_;                    // By worker.
  std::vector<int> waits_for_;                // By worker: for so many closures of others.
  std::vector<std::vector<int64_t>> missed_;  // By worker, what its closure misses of each other.
};

}  // namespace sidereal::coord
