#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace sidereal::base {

/// A queue that takes memory only while it grows: std::deque takes and gives back a block for every
/// few elements that pass through it. T is default-constructible and movable.
/// Thread: none of its own.
template <class T>
class RingQueue {
 public:
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] size_t size() const { return count_; }

  void push_back(T value) {
    if (count_ == places_.size()) grow();
    places_[(first_ + count_++) & (places_.size() - 1)] = std::move(value);
  }
  /// The oldest element, which leaves. Not to be called when empty().
  T pop_front() {
    T out = std::exchange(places_[first_], T());
    first_ = (first_ + 1) & (places_.size() - 1);
    --count_;
    return out;
  }
  /// Element number `i`, from the oldest.
  T& operator[](size_t i) { return places_[(first_ + i) & (places_.size() - 1)]; }
  /// Drops all, and the memory.
  void clear() { *this = RingQueue(); }

 private:
  void grow() {
    std::vector<T> larger(places_.empty() ? 8 : 2 * places_.size());
    for (size_t i = 0; i < count_; ++i) {
      larger[i] = std::move(places_[(first_ + i) & (places_.size() - 1)]);
    }
    places_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> places_;  // A power of two of them, or none.
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace sidereal::base
