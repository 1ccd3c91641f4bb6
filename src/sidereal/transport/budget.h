#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace sidereal::transport {

/// Bytes that all connections of a lane may receive into at a time. Who finds no room waits in
/// turn. More than there is at all is given to one who is alone. Thread: core-local.
class Budget {
 public:
  /// Who waits. Borrowed until it is told or forgotten.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    /// The bytes asked for are taken now. Must neither take nor give back.
    virtual void on_room() = 0;
  };

  explicit Budget(uint64_t bytes_max) : max_(bytes_max) {}

  /// True: taken. False: `waiter` will be told.
  bool take(uint64_t bytes, Waiter* waiter);
  void give_back(uint64_t bytes);
  /// `waiter` waits no more. What it was told of is its own to give back.
  void forget(Waiter* waiter);

  [[nodiscard]] uint64_t used() const { return used_; }
  [[nodiscard]] uint64_t used_max() const { return used_max_; }
  [[nodiscard]] size_t waiting() const { return waiting_.size(); }

 private:
  struct Wish {
    uint64_t bytes;
    Waiter* waiter;
  };
  [[nodiscard]] bool fits(uint64_t bytes) const {
    return used_ == 0 || (bytes <= max_ && used_ <= max_ - bytes);
  }
  void use(uint64_t bytes);
  void serve();

  const uint64_t max_;
  uint64_t used_ = 0;
  uint64_t used_max_ = 0;  // The most there ever was.
  std::deque<Wish> waiting_;
};

}  // namespace sidereal::transport
