#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sidereal::resources {

/// How often a row was met. Value type.
struct RowCount {
  int64_t row = 0;
  int64_t count = 0;  ///< At most so often,
  int64_t error = 0;  ///< and at most so much less.

  [[nodiscard]] int64_t at_least() const { return count - error; }
};

/// How often rows were met: those that were met most, and all together. Value type.
struct RowCounts {
  int64_t total = 0;
  std::vector<RowCount> rows;
};

/// Finds the rows that a stream has most of, in memory of a fixed size: as many counters as there
/// is room for; a row that has none takes over the lowest, with its count. So a count is too large
/// by no more than that was, a row of more than total / kCapacity has a counter, and an addition
/// costs the same however many rows there are (Space-Saving: Metwally, Agrawal, El Abbadi,
/// "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005).
/// Thread: one writer, which never waits; read() any.
class SpaceSaving {
 public:
  static constexpr size_t kCapacity = 128;

  SpaceSaving();
  SpaceSaving(const SpaceSaving&) = delete;
  SpaceSaving& operator=(const SpaceSaving&) = delete;

  /// Counts `row`. Writer only.
  void add(int64_t row);
  /// Two numbers of the writer's that go with the counts.
  using Notes = std::array<int64_t, 2>;
  /// Halves all counts so many times, as what was counted before is to weigh less, and notes what
  /// is so of them from then on. Writer only.
  void halve(int64_t times, Notes notes);
  /// All that have a counter, in no order; false where the writer changed them all the while.
  [[nodiscard]] bool read(RowCounts* counts, Notes* notes) const;

 private:
  /// Any number of a slot, or none.
  using Slot = uint8_t;
  static constexpr Slot kNone = 0xff;
  static_assert(kCapacity < kNone);
  static constexpr size_t kHeads = 256;
  static size_t head_of(int64_t row) {
    return (static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15) >> 56;
  }

  /// What readers see of it. A reader that has met any of a change, as it is released, finds the
  /// version changed after it.
  template <class T>
  class Shared {
   public:
    [[nodiscard]] T get() const { return value_.load(std::memory_order_relaxed); }
    [[nodiscard]] T read() const { return value_.load(std::memory_order_acquire); }
    void set(T value) { value_.store(value, std::memory_order_release); }

   private:
    std::atomic<T> value_{0};
  };
  class Change;

  [[nodiscard]] Slot find(int64_t row) const;
  Slot take(int64_t row);
  void link(Slot slot, int64_t row);
  void unlink(Slot slot);
  void raise(Slot slot);

  std::atomic<uint64_t> version_ = 0;  // Odd while the writer changes the following.
  Shared<int64_t> total_;
  Shared<size_t> size_;
  std::array<Shared<int64_t>, std::tuple_size_v<Notes>> notes_;
  std::array<Shared<int64_t>, kCapacity> rows_;
  std::array<Shared<int64_t>, kCapacity> counts_;
  std::array<Shared<int64_t>, kCapacity> errors_;
  // The writer's alone.
  std::array<Slot, kHeads> heads_;    // Of lists of slots, by hashes of their rows.
  std::array<Slot, kCapacity> next_;  // In such a list.
  // Slots by falling count, and where each is there.
  std::array<Slot, kCapacity> by_count_;
  std::array<Slot, kCapacity> place_;
};

}  // namespace sidereal::resources
