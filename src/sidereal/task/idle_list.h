#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

/// Internal to task.
namespace sidereal::task {

/// Things that can be used again. What was put last, which is warm, is taken first; so those that
/// nobody needs stay where they are, and are found. There are as many as were in use at once since
/// trim() before the last: whoever puts them bounds that. Thread: core-local.
template <class T, class Pointer = std::unique_ptr<T>>
class IdleList {
 public:
  /// nullptr: there is none.
  Pointer take() {
    if (items_.empty()) return nullptr;
    Pointer out = std::move(items_.back());
    items_.pop_back();
    fewest_ = std::min(fewest_, items_.size());
    return out;
  }
  void put(Pointer item) { items_.push_back(std::move(item)); }
  /// Destroys those that were not needed since this was last called.
  void trim() {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(fewest_));
    fewest_ = items_.size();
  }
  /// Destroys all.
  void clear() { *this = IdleList(); }
  [[nodiscard]] size_t size() const { return items_.size(); }

 private:
  std::vector<Pointer> items_;
  size_t fewest_ = 0;  // Items that there were since trim().
};

}  // namespace sidereal::task
