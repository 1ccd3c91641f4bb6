#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sidereal/metrics/figures.h"
#include "sidereal/metrics/histogram.h"

/// How old what steps compute with is.
namespace sidereal::resources {

/// Counts the changes of a variable: how many others made between what a step read of it and what
/// that step then changed. Takes no memory before the first change.
/// Thread: that of the variable's value, but for read().
class Staleness {
 public:
  Staleness() = default;
  ~Staleness() { delete counted_.load(std::memory_order_relaxed); }
  Staleness(const Staleness&) = delete;
  Staleness& operator=(const Staleness&) = delete;

  /// A step reads the value.
  void note_read(uint64_t step) {
    Counted* const counted = counted_.load(std::memory_order_relaxed);
    if (counted != nullptr) counted->place_of(step) = {.step = step, .version = counted->version};
  }
  /// A step changes it. Counts nothing where its reading is not known: it has not read the value,
  /// or too many others have since.
  void note_change(uint64_t step, bool is_table);

  /// Adds what was counted, of the variable of this key in a Manager. Thread: any.
  void read(std::string_view key, metrics::Readings* into) const;

 private:
  struct Read {
    uint64_t step = 0;
    uint64_t version = 0;
  };
  struct Counted {
    explicit Counted(bool is_table) : is_table(is_table) {}
    /// Where the reading of a step is remembered. Numbers of steps may count up in any bits.
    Read& place_of(uint64_t step) { return reads[(step * 0x9e3779b97f4a7c15) >> 56]; }

    const bool is_table;
    uint64_t version = 0;           // Changes so far.
    std::array<Read, 256> reads{};  // Those of steps that are under way at once, mostly.
    metrics::Histogram seen;
  };

  std::atomic<Counted*> counted_ = nullptr;  // Its own.
};

}  // namespace sidereal::resources
