#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace sidereal::base {

/// Values under ids that are not used twice within 2^31 uses of a place, not 0 and below 2^63.
/// Takes memory only while it grows. T is default-constructible and movable.
/// Thread: none of its own.
template <class T>
class SlotMap {
 public:
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
    return id_of(at);
  }
  /// Or nullptr.
  [[nodiscard]] T* find(uint64_t id) {
    const auto at = static_cast<uint32_t>(id);
    if (at >= places_.size()) return nullptr;
    Place& place = places_[at];
    return place.taken && place.generation == id >> 32 ? &place.value : nullptr;
  }
  /// What was there, which is there no more.
  std::optional<T> take(uint64_t id) {
    T* const value = find(id);
    if (value == nullptr) return std::nullopt;
    std::optional<T> out = std::exchange(*value, T());
    Place& place = places_[static_cast<uint32_t>(id)];
    place.taken = false;
    place.generation = place.generation == kGenerationMax ? 1 : place.generation + 1;
    free_.push_back(static_cast<uint32_t>(id));
    return out;
  }
  /// False when there is none. It is not there any more when its destructor runs.
  bool erase(uint64_t id) { return take(id).has_value(); }
  /// Erases all.
  void clear() {
    for (size_t at = 0; at < places_.size(); ++at) erase(id_of(at));
  }
  /// Calls `fn` with each value, in the order of places; it may erase.
  template <class Fn>
  void each(const Fn& fn) {
    for (size_t at = 0; at < places_.size(); ++at) {
      if (places_[at].taken) fn(places_[at].value);
    }
  }
  [[nodiscard]] size_t size() const { return places_.size() - free_.size(); }

 private:
  static constexpr uint32_t kGenerationMax = (uint32_t{1} << 31) - 1;
  struct Place {
    T value = {};
    uint32_t generation = 1;
    bool taken = false;
  };
  [[nodiscard]] uint64_t id_of(size_t at) const {
    return (uint64_t{places_[at].generation} << 32) | at;
  }
  std::vector<Place> places_;
  std::vector<uint32_t> free_;
};

}  // namespace sidereal::base
