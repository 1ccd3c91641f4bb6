#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "sidereal/tensor/tensor.h"
#include "tests/sim/ledger.h"

namespace sidereal::sim {

/// The truth about the pushes of steps. Each has rows of a variable that no other push writes to,
/// and adds 1 to them: so what was done of it stands in the variable.
class PushTable {
 public:
  /// Rows of every variable. Row 0 is nobody's.
  static constexpr int64_t kRows = 1 << 17;

  /// One call's worth of a push.
  struct Push {
    size_t place = 0;  ///< of the variable
    int64_t first_row = 0;
    int64_t rows = 0;
    uint64_t life = 0;          ///< of the ps, which its session is attached to
    bool acknowledged = false;  ///< its step has ended well
    uint64_t applied_by = 0;    ///< a life whose variable says so
  };

  PushTable(size_t places, Ledger* ledger) : next_row_(places, 1), ledger_(ledger) {}

  /// Its number; the variable has room for it: see rows_left().
  size_t begin(size_t place, int64_t rows, uint64_t life);
  [[nodiscard]] const Push& push(size_t number) const { return pushes_[number]; }
  [[nodiscard]] int64_t rows_left(size_t place) const { return kRows - next_row_[place]; }
  /// The worker was told that the push is done.
  void acknowledge(size_t number);
  /// A life of a ps is at its end, with this in the variable of `place`, float32 [kRows, width].
  void read(size_t place, uint64_t life, const tensor::Tensor& variable);

  [[nodiscard]] int64_t applied_count() const { return applied_; }
  [[nodiscard]] int64_t acknowledged_count() const { return acknowledged_; }

 private:
  std::vector<Push> pushes_;
  std::vector<int64_t> next_row_;  // by place
  std::set<uint64_t> read_;        // lives
  int64_t applied_ = 0;
  int64_t acknowledged_ = 0;
  Ledger* const ledger_;
};

}  // namespace sidereal::sim
