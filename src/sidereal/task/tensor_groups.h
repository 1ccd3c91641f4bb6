#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/ports/ports.h"

/// Internal to task.
namespace sidereal::task {

/// Tensor groups by key, each with an `About`. What goes leaves its memory to what comes, so that
/// memory is taken only while there are more than ever before; clear() keeps that of a usual step.
/// About is default-constructible.
/// Thread: none of its own.
template <class About>
class TensorGroups {
 public:
  struct Entry {
    ports::TensorGroup values;
    About about = {};

   private:
    friend class TensorGroups;
    ports::RendezvousKey key_;
    bool is_used_ = false;
  };

  /// Or nullptr. Good until the next add().
  [[nodiscard]] Entry* find(const ports::RendezvousKey& key) {
    const auto found = places_.find(key);
    return found == places_.end() ? nullptr : &entries_[found->second];
  }
  /// An empty one. Not to be called for a key that is here.
  Entry& add(const ports::RendezvousKey& key) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(entries_.size()));
      entries_.emplace_back();
    }
    const uint32_t at = free_.back();
    free_.pop_back();
    places_.emplace(key, at);
    entries_[at].key_ = key;
    entries_[at].is_used_ = true;
    return entries_[at];
  }
  void erase(const ports::RendezvousKey& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return;
    empty(found->second);
    places_.erase(found);
  }
  /// Erases those of which `which(about)` is true.
  template <class Which>
  void erase_if(const Which& which) {
    each_place([&](uint32_t at) {
      if (!which(entries_[at].about)) return;
      places_.erase(entries_[at].key_);
      empty(at);
    });
  }
  void clear() {
    if (entries_.size() > kKept) {
      *this = TensorGroups();
      return;
    }
    each_place([this](uint32_t at) { empty(at); });
    places_.clear();
  }
  /// Calls `fn` with the About of each.
  template <class Fn>
  void each(const Fn& fn) {
    each_place([&](uint32_t at) { fn(entries_[at].about); });
  }

 private:
  static constexpr size_t kKept = 256;

  /// In the order of their places: that of the map is another one in each run.
  template <class Fn>
  void each_place(const Fn& fn) {
    size_t left = places_.size();
    for (uint32_t at = 0; left > 0; ++at) {
      if (!entries_[at].is_used_) continue;
      --left;
      fn(at);
    }
  }
  void empty(uint32_t at) {
    entries_[at].values.clear();
    entries_[at].about = {};
    entries_[at].is_used_ = false;
    free_.push_back(at);
  }

  absl::flat_hash_map<ports::RendezvousKey, uint32_t> places_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
};

}  // namespace sidereal::task
