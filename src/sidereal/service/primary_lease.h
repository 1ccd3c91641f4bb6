#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/base/event_log.h"
#include "sidereal/base/status.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/follower.h"
#include "sidereal/task/task.h"

namespace sidereal::service {

struct PrimaryLeaseOptions {
  task::Task* task = nullptr;  ///< Borrowed.
  std::vector<FollowedAddress> voters = {};
  std::chrono::nanoseconds lease{0};
  std::shared_ptr<const security::Credentials> credentials = nullptr;
  base::EventSource source = {};
};

/// Keeps a membership::Lease of this start of a task: while it does not hold, the task answers
/// nothing.
/// Lifecycle: voters are asked from the constructor to the destructor.
/// Thread:    any.
class PrimaryLease {
 public:
  explicit PrimaryLease(PrimaryLeaseOptions options);
  ~PrimaryLease();
  PrimaryLease(const PrimaryLease&) = delete;
  PrimaryLease& operator=(const PrimaryLease&) = delete;

  [[nodiscard]] bool holds() const;
  /// Why it does not, for people: who has the votes, or how many voters answer.
  [[nodiscard]] std::string why_not() const;
  /// The start that counts now, says a majority of voters, and has this one's place.
  [[nodiscard]] std::optional<uint64_t> deposed_by() const;
  /// The view in which it counts, or did last; 0: it never has.
  [[nodiscard]] uint64_t view() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sidereal::service
