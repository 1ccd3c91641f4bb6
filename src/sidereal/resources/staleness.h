#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/metrics/counter.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/metrics/histogram.h"
#include "sidereal/resources/push_counts.h"
#include "sidereal/resources/pushers.h"

/// How old what steps compute with is, and what would be lost with it.
namespace sidereal::resources {

/// The name of a table that is called `key`, or of which `key` is a part: "w" of "c|w/part_3", and
/// of "w/part_3_1", as a strategy calls it. All of it but for a container is the name of
/// anything else, as of a slot of a part.
std::string_view table_of(std::string_view key);

/// Counts the changes of a variable: how many others made between what a step read of it and what
/// that step then changed, by pusher; and how many its value has in it, and no checkpoint.
/// Takes no memory before the first change. A change costs a few additions to what is the
/// variable's alone, and looks nothing up.
/// Thread: that of the variable's value, but for what says otherwise.
class Staleness {
 public:
  Staleness() = default;
  ~Staleness() {
    end();
    delete counted_.load(std::memory_order_relaxed);
  }
  Staleness(const Staleness&) = delete;
  Staleness& operator=(const Staleness&) = delete;

  /// A step of the pusher of this number reads the value.
  void note_read(uint64_t step, int pusher) {
    Counted* const counted = counted_.load(std::memory_order_relaxed);
    if (counted == nullptr) return;
    counted->place_of(step, pusher) = {.step = step, .version = counted->changes.value()};
  }
  /// The step changes `rows` of it, if it is a table. The step counts
  /// nothing where its reading is not known: it has not read the value, or too many others have
  /// since.
  void note_change(uint64_t step, int pusher, bool is_table, int64_t rows) {
    Counted* const counted = counted_or_begun();
    const Read& read = counted->place_of(step, pusher);
    if (read.step == step) {
      counted->seen_by(pusher)->record(counted->changes.value() - read.version);
    }
    counted->change(step, pusher, is_table, rows);
  }
  /// The same of a step that need not have computed with what it has read, as it assigns.
  void note_assignment(uint64_t step, int pusher, bool is_table, int64_t rows) {
    counted_or_begun()->change(step, pusher, is_table, rows);
  }
  /// What the variable has in it of what was pushed. Value type.
  struct Pushed {
    int64_t pushes = 0;
    int64_t rows = 0;
    bool is_table = false;
  };
  /// What is so now goes into the checkpoint of this cut.
  Pushed note_cut(uint64_t cut);
  /// It has other values, which have so much of it in them.
  void note_restored(const Pushed& now);
  /// It goes, and what it has in it is not lost. Thread: any.
  void end();

  /// What was counted with these numbers, which no worker has any more, becomes the others'.
  /// Thread: any.
  void put_aside(std::span<const int> pushers);
  /// Adds what was counted, of the variable of this key in a Manager. `names`: of pushers.
  /// `committed`: cuts whose checkpoints are in place, the latest last. Thread: any.
  void read(std::string_view key, std::span<const std::string> names,
            std::span<const uint64_t> committed, metrics::Readings* into) const;

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
    // Beside the counts of small numbers, in one line of the cache.
    alignas(64) metrics::Counter sum_;
    metrics::Counter max_;
    std::array<metrics::Counter, kBuckets> counts_;
  };
  struct Counted {
    Counted() = default;
    ~Counted();
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

    /// Where the reading of a step is remembered: the one of some places that has it, else the one
    /// with the oldest. A pusher goes round in few sets, so that its next step finds them in the
    /// cache: there are many variables. Numbers of steps may count up in any bits.
    Read& place_of(uint64_t step, int pusher) {
      const uint64_t mixed = step * 0x9e3779b97f4a7c15;
      const uint64_t of_pusher = static_cast<uint64_t>(pusher) * kSetsOfOne + (mixed >> 62);
      const uint64_t set = pusher == Pushers::kOthers ? mixed >> 58 : of_pusher % kSets;
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
    [[nodiscard]] Pushed pushed() const {
      return {.pushes = changes.value() - changes_dropped.value(),
              .rows = rows.value() - rows_dropped.value(),
              .is_table = is_table.load(std::memory_order_relaxed)};
    }
    void change(uint64_t step, int pusher, bool of_table, int64_t of_rows) {
      if (of_table) is_table.store(true, std::memory_order_relaxed);
      const int64_t version = changes.value() + 1;
      // A step that changes it twice is no other one to itself.
      Read& read = place_of(step, pusher);
      if (read.step == step) read.version = version;
      changes.set(version);
      rows.add(of_rows);
      PushCounts::add_here(of_rows);
    }
    void drop(const Pushed& gone) const {
      if (counts != nullptr) counts->drop(lane, gone.pushes, gone.rows);
    }

    // Of the lane that changed it first.
    const std::shared_ptr<PushCounts> counts =
        PushCounts::here() == nullptr ? nullptr : PushCounts::here()->shared_from_this();
    const int lane = PushCounts::lane_here();
    std::atomic<bool> is_table = false;
    metrics::Counter changes;  // So far.
    metrics::Counter rows;     // That they changed.
    // Of them, those that the values do not have in them, since they were restored.
    metrics::Counter changes_dropped;
    metrics::Counter rows_dropped;
    static constexpr size_t kSets = 64;
    static constexpr size_t kSetsOfOne = 4;  // What two bits tell apart.
    static constexpr size_t kWays = 4;       // Steps that meet at one place are told apart.
    alignas(64) std::array<Read, kSets * kWays> reads{};  // Of steps that are under way, mostly.
    std::array<std::atomic<Seen*>, Pushers::kMax + 1> by_pusher{};  // Its own.
    mutable std::mutex mutex;            // Of put_aside() and read(): each count is in one place.
    metrics::HistogramSnapshot aside{};  // With mutex.
    /// What values had in them that went into a checkpoint.
    struct Cut {
      uint64_t cut = 0;
      Pushed pushed;
    };
    mutable std::vector<Cut> cuts;  // With mutex: not known to be in place.
    mutable Pushed saved;           // With mutex: what the latest checkpoint in place has.
    bool has_ended = false;         // With mutex.
  };

  Counted* counted_or_begun() {
    Counted* const counted = counted_.load(std::memory_order_relaxed);
    return counted != nullptr ? counted : begin();
  }
  Counted* begin();

  std::atomic<Counted*> counted_ = nullptr;  // Its own.
};

}  // namespace sidereal::resources
