#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <utility>

/// Which lane of a task has what it alone may read and change.
namespace sidereal::resources {

class ChangeLog;

/// The lanes of a task, as seen by what belongs to one of them. Thread: any.
class Lanes {
 public:
  virtual ~Lanes();
  /// Runs `fn` on lane `lane` soon, between its steps, in the order in which a thread says it.
  /// False once the lane is stopping; then `fn` never runs.
  virtual bool post(int lane, std::function<void()> fn) = 0;
  /// The change logs of a lane that are read, each of other variables. Thread: that lane.
  [[nodiscard]] virtual std::span<ChangeLog* const> logs(int lane) const;
};

/// The lane that a group of variables belongs to: those that some op changes together.
/// Thread: any may ask for the lane, and be told of one that it was a moment ago; only the lane
/// that the group belongs to can be sure of it, and may change it.
class Owner : public std::enable_shared_from_this<Owner> {
 public:
  /// `lanes` is borrowed.
  Owner(Lanes* lanes, int lane) : lanes_(lanes), lane_(lane) {}

  [[nodiscard]] Lanes* lanes() const { return lanes_; }
  [[nodiscard]] int lane() const { return group()->lane_.load(std::memory_order_acquire); }
  /// Gives the group to another lane. Thread: the lane that it belongs to.
  void give_to(int lane);
  /// Makes one group of two. Thread: the lane that both belong to.
  void join(Owner* other);
  /// Whether both are of one group.
  [[nodiscard]] bool is_one_with(const Owner& other) const { return group() == other.group(); }

 private:
  /// Who speaks for the group.
  [[nodiscard]] const Owner* group() const {
    const Owner* at = this;
    while (const Owner* const next = at->joined_.load(std::memory_order_acquire)) at = next;
    return at;
  }
  Owner* group() { return const_cast<Owner*>(std::as_const(*this).group()); }

  Lanes* const lanes_;
  std::atomic<int> lane_;
  std::atomic<const Owner*> joined_ = nullptr;  // Changes once.
  std::shared_ptr<const Owner> kept_;           // The same, before others see it.
};

}  // namespace sidereal::resources
