#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "sidereal/base/status.h"
#include "sidereal/resources/push_counts.h"

namespace sidereal::task {

/// What an answer says of the lanes that it was pushed to: one, mostly.
using Pushed = absl::InlinedVector<resources::PushedSoFar, 1>;

/// What the answers of other tasks have said was pushed there so far: known here when those are
/// lost.
/// Thread: any.
class AnsweredPushes {
 public:
  /// Answers may come in any order: what is latest stays.
  void note(std::span<const resources::PushedSoFar> pushed) {
    if (pushed.empty()) return;
    const std::lock_guard lock(mutex_);
    for (const resources::PushedSoFar& one : pushed) {
      resources::PushedSoFar& known = latest_[{one.life, one.lane}];
      if (one.number >= known.number) known = one;
    }
  }
  /// Has `all`, which is another one, hear the same.
  void add_to(AnsweredPushes* all) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [where, one] : latest_) all->note({&one, 1});
  }
  [[nodiscard]] std::vector<resources::PushedSoFar> latest() const {
    const std::lock_guard lock(mutex_);
    std::vector<resources::PushedSoFar> out;
    out.reserve(latest_.size());
    for (const auto& [where, one] : latest_) out.push_back(one);
    return out;
  }

 private:
  mutable std::mutex mutex_;
  absl::flat_hash_map<std::pair<uint64_t, int>, resources::PushedSoFar> latest_;
};

/// Sets `out` to what goes before the tail of an answer over a data port: nothing of none.
void encode_pushed(const Pushed& pushed, std::string* out);
/// Takes it from the beginning of `bytes`. kDataLoss.
Status take_pushed(std::string_view* bytes, Pushed* out);

}  // namespace sidereal::task
