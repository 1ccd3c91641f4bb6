#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/resources/replica.h"
#include "tests/sim/push_table.h"
#include "tests/sim/task_ps.h"

namespace sidereal::sim {

/// A synchronous standby of one life of a parameter server: a real replica that reads the real logs
/// of its lanes. What goes between the two keeps its order, and is late, stands still or breaks as
/// the scenario says. At the end it is compared with what the server has answered.
/// Thread: the world's.
class Standby {
 public:
  /// All are borrowed; the ps longer than this.
  Standby(const Context& context, TaskPs* ps, int index, PushTable* pushes);
  ~Standby();
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;

  /// The ps has been killed, and the pushes know what it had: complains of a lane whose answers
  /// waited for this, and that has answered more than is here.
  void check_after_death();
  /// All has been quiet for a while, and the pushes know what the ps has: complains unless the same
  /// is here, and lanes wait for it.
  void check_current();

 private:
  class Stream;
  using StreamPtr = std::shared_ptr<Stream>;

  [[nodiscard]] StreamPtr& stream_of(int lane) { return streams_[static_cast<size_t>(lane)]; }
  void open(int lane, bool from_the_start);
  /// Opens another stream in a while, in the place of this one, which nobody reads any more.
  void replace(const StreamPtr& stream, bool from_the_start);
  /// Calls `fn` when what leaves for this stream now has got here.
  void deliver(const StreamPtr& stream, std::function<void()> fn);
  void arrived(const StreamPtr& stream, const std::string& bytes);
  /// Says what is here; that takes a while too.
  void acknowledge(const StreamPtr& stream);
  /// Has something happen to the stream, sooner or later.
  void disturb(const StreamPtr& stream);
  void after(int64_t ns, std::function<void()> fn);
  /// The cut of the log which the stream reads up to which everything is here.
  [[nodiscard]] uint64_t applied(const Stream& stream) const;
  /// Whether all that the lane has answered is here: it has waited for this since a cut that is
  /// here.
  [[nodiscard]] bool has_answered(int lane);
  void compare(int lane, CopyIs is);
  [[nodiscard]] const Scenario& scenario() const { return *context_.scenario; }

  const Context& context_;
  TaskPs* const ps_;
  const int index_;
  PushTable* const pushes_;
  sys::sim::Rng rng_;
  resources::Replica replica_{size_t{4} << 30};
  std::vector<StreamPtr> streams_;  // By lane.
  /// What is on its way finds that nobody is here.
  const std::shared_ptr<bool> is_there_ = std::make_shared<bool>(true);
};

}  // namespace sidereal::sim
