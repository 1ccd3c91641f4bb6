#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/resources/manager.h"
#include "sidereal/resources/waiters.h"

namespace sidereal::resources {

/// Holds back replicas that are ahead of others (stale synchronous parallel: Ho et al., More
/// Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, 2013). It counts the
/// steps that each has ended; a replica begins its next one when no other, that trains yet, is
/// further behind than a bound.
/// Replicas have numbers that follow each other, from another first one after each restart(): what
/// those of an earlier time still say is dropped. Or each joins by its name, when it comes.
/// Thread: any.
class StepBarrier final : public Resource,
                          public WaitingRoom,
                          public std::enable_shared_from_this<StepBarrier> {
 public:
  static constexpr std::string_view kKind = "barrier";
  static constexpr size_t kReplicasMax = size_t{1} << 20;

  /// A barrier of no replica.
  static std::shared_ptr<StepBarrier> make(std::string name);

  [[nodiscard]] std::string_view kind() const override { return kKind; }

  /// Begins anew: what waits ends with kAborted, and no replica, of those that `names` calls so,
  /// has ended a step; the first has the number `first`. kInvalidArgument for a negative bound, and
  /// unless there is a replica, or for too many.
  Status restart(int64_t first, int64_t bound, std::vector<std::string> names);
  /// Waits until the replica may begin its next step: each other one has at most `bound` fewer
  /// behind it, or has had its last. The result is the number of that step, from 0, int64 []. Of a
  /// replica of before: kAborted.
  Result<std::unique_ptr<Ticket>> await(int64_t replica);
  /// The replica has ended a step.
  Status advance(int64_t replica);
  /// The replica ends with so many steps: when it has ended these it is not waited for.
  /// kInvalidArgument for a negative number.
  Status leave(int64_t replica, int64_t steps);
  /// One more replica, whose number is the result; it has ended as few steps as any that trains. It
  /// has the place of one of its name, which is refused from here on (kFailedPrecondition): it is
  /// the same one, started again. kInvalidArgument for a negative bound, and for another one than
  /// those that train have; kResourceExhausted for too many.
  Result<int64_t> join(const std::string& name, int64_t bound);
  /// Those that the replica waits for now are not waited for until they are heard of again, and
  /// have ended as few steps then as any that trains; their names.
  Result<std::vector<std::string>> expel(int64_t replica);

  /// "barrier 'b', where w1 has ended 3 steps, for step 5 of w0", for what waits.
  [[nodiscard]] std::string describe(int64_t replica) const;

  void cancel() override;
  bool poll(const Request& request) override;
  void withdraw(const RequestPtr& request) override;

 private:
  struct Replica {
    std::string name;
    int64_t steps = 0;  ///< That it has ended.
    int64_t last = std::numeric_limits<int64_t>::max();
    bool is_expelled = false;
    bool is_replaced = false;  ///< Another one has its name.
    [[nodiscard]] bool has_left() const { return steps >= last && !is_replaced; }
    [[nodiscard]] bool trains() const { return !has_left() && !is_expelled && !is_replaced; }
  };

  explicit StepBarrier(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] bool is_of_before(int64_t replica) const { return replica < first_; }
  [[nodiscard]] Status check(int64_t replica) const;
  [[nodiscard]] Status check_now(int64_t replica) const;
  [[nodiscard]] int64_t fewest_steps() const;
  void take_back(Replica* replica);
  [[nodiscard]] Replica& at(int64_t replica) {
    return replicas_[static_cast<size_t>(replica - first_)];
  }
  void serve();
  void end_all(const Status& why);

  const std::string name_;
  mutable std::mutex mutex_;
  int64_t first_ = 0;
  int64_t bound_ = 0;
  std::deque<Replica> replicas_;
  std::deque<RequestPtr> waiting_;  // Of each, `count` is the replica.
};

}  // namespace sidereal::resources
