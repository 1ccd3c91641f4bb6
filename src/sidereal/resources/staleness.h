#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "sidereal/metrics/counter.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/metrics/histogram.h"
#include "sidereal/resources/pushers.h"

/// How old what steps compute with is, and what would be lost with it.
namespace sidereal::resources {

/// Counts the changes of a variable: how many others made between what a step read of it and what
/// that step then changed, by pusher; and how many rows have changed that no checkpoint has.
/// Takes no memory before the first change. A change costs a few additions to what is the
/// variable's alone, and looks nothing up.
/// Thread: that of the variable's value, but for what says otherwise.
class Staleness {
 public:
  Staleness() = default;
  ~Staleness() { delete counted_.load(std::memory_order_relaxed); }
  Staleness(const Staleness&) = delete;
  Staleness& operator=(const Staleness&) = delete;

  /// A step reads the value.
  void note_read(uint64_t step) {
    Counted* const counted = counted_.load(std::memory_order_relaxed);
    if (counted == nullptr) return;
    counted->place_of(step) = {.step = step, .version = counted->changes.value()};
  }
  /// A step of the pusher of this number changes `rows` of it, if it is a table. The step counts
  /// nothing where its reading is not known: it has not read the value, or too many others have
  /// since.
  void note_change(uint64_t step, int pusher, bool is_table, int64_t rows) {
    Counted* const counted = counted_or_begun();
    const Read& read = counted->place_of(step);
    if (read.step == step) {
      counted->seen_by(pusher)->record(counted->changes.value() - read.version);
    }
    counted->change(step, is_table, rows);
  }
  /// The same of a step that need not have computed with what it has read, as it assigns.
  void note_assignment(uint64_t step, bool is_table, int64_t rows) {
    counted_or_begun()->change(step, is_table, rows);
  }
  /// What is so now goes into a checkpoint.
  void note_cut();

  /// What was counted with these numbers, which no worker has any more, becomes the others'.
  /// Thread: any.
  void put_aside(std::span<const int> pushers);
  /// Adds what was counted, of the variable of this key in a Manager. `names`: of pushers. Thread:
  /// any.
  void read(std::string_view key, std::span<const std::string> names,
            metrics::Readings* into) const;

 private:
  struct Read {
    uint64_t step = 0;
    int64_t version = 0;
  };
  /// A metrics::Histogram of small numbers, those of 131072 and more being in its last bucket: a
  /// quarter of the memory, as there is one for each variable and pusher.
  class Seen {
   public:
    void record(int64_t value) {
      counts_[std::min(metrics::Histogram::bucket_of(value), kBuckets - 1)].add();
      sum_.add(value);
      if (value > max_.value()) max_.set(value);
    }
    [[nodiscard]] metrics::HistogramSnapshot snapshot() const;
    /// Begins anew. Thread: any; a step that records at this moment may be counted or not.
    void clear();

   private:
    static constexpr size_t kBuckets = 64;
    std::array<metrics::Counter, kBuckets> counts_;
    metrics::Counter sum_;
    metrics::Counter max_;
  };
  struct Counted {
    Counted() = default;
    ~Counted();
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

    /// Where the reading of a step is remembered: the one of some places that has it, else the one
    /// with the oldest. Numbers of steps may count up in any bits.
    Read& place_of(uint64_t step) {
      const uint64_t set = (step * 0x9e3779b97f4a7c15) >> 58;
      Read* const first = &reads[set * kWays];
      Read* oldest = first;
      for (Read* read = first; read != first + kWays; ++read) {
        if (read->step == step) return *read;
        if (read->version < oldest->version) oldest = read;
      }
      return *oldest;
    }
    Seen* seen_by(int pusher) {
      Seen* const seen = by_pusher[static_cast<size_t>(pusher)].load(std::memory_order_relaxed);
      return seen != nullptr ? seen : begin_by(pusher);
    }
    Seen* begin_by(int pusher);
    void change(uint64_t step, bool of_table, int64_t of_rows) {
      if (of_table) is_table.store(true, std::memory_order_relaxed);
      const int64_t version = changes.value() + 1;
      // A step that changes it twice is no other one to itself.
      Read& read = place_of(step);
      if (read.step == step) read.version = version;
      changes.set(version);
      rows.add(of_rows);
    }

    std::atomic<bool> is_table = false;
    metrics::Counter changes;  // So far.
    metrics::Counter rows;     // That they changed.
    metrics::Counter changes_in_cut;
    metrics::Counter rows_in_cut;
    static constexpr size_t kWays = 4;  // Steps that meet at one place are told apart.
    alignas(64) std::array<Read, 64 * kWays> reads{};  // Of steps that are under way, mostly.
    std::array<std::atomic<Seen*>, Pushers::kMax + 1> by_pusher{};  // Its own.
    mutable std::mutex mutex;            // Of put_aside() and read(): each count is in one place.
    metrics::HistogramSnapshot aside{};  // With mutex.
  };

  Counted* counted_or_begun() {
    Counted* const counted = counted_.load(std::memory_order_relaxed);
    return counted != nullptr ? counted : begin();
  }
  Counted* begin();

  std::atomic<Counted*> counted_ = nullptr;  // Its own.
};

}  // namespace sidereal::resources
