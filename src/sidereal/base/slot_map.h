#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace sidereal::base {

/// Values under ids that are never used twice: places are, under another generation. Takes memory
/// only while it grows. T is default-constructible and movable.
/// Thread: none of its own.
template <class T>
class SlotMap {
 public:
  /// Not 0.
  uint64_t add(T value) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(places_.size()));
      places_.emplace_back();
      // So that none of them takes memory when it goes.
      free_.reserve(places_.capacity());
    }
    const uint32_t at = free_.back();
    free_.pop_back();
    Place& place = places_[at];
    place.value = std::move(value);
    place.taken = true;
    return (uint64_t{place.generation} << 32) | at;
  }
  /// Or nullptr.
  [[nodiscard]] T* find(uint64_t id) {
    const auto at = static_cast<uint32_t>(id);
    if (at >= places_.size()) return nullptr;
    Place& place = places_[at];
    return place.taken && place.generation == id >> 32 ? &place.value : nullptr;
  }
  /// False when there is none.
  bool erase(uint64_t id) {
    T* const value = find(id);
    if (value == nullptr) return false;
    *value = T();
    Place& place = places_[static_cast<uint32_t>(id)];
    place.taken = false;
    // 0 would make an id that is 0, and after 2^32 uses an old id is as good as a new one.
    if (++place.generation == 0) ++place.generation;
    free_.push_back(static_cast<uint32_t>(id));
    return true;
  }
  [[nodiscard]] size_t size() const { return places_.size() - free_.size(); }

 private:
  struct Place {
    T value = {};
    uint32_t generation = 1;
    bool taken = false;
  };
  std::vector<Place> places_;
  std::vector<uint32_t> free_;
};

}  // namespace sidereal::base
