#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "sidereal/tensor/tensor.h"
#include "tests/sim/ledger.h"

namespace sidereal::sim {

/// What is known of a copy of a variable.
enum class CopyIs : uint8_t {
  kACut,                ///< It was like this at some time.
  kAllThatWasAnswered,  ///< It has what was answered, at least.
  kCurrent,             ///< It is as the variable.
};

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
    bool is_missed = false;     ///< a copy does not have it that has all that was answered
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
  /// The same of a copy, after the variable was read.
  void read_copy(size_t place, uint64_t life, const tensor::Tensor& copy, CopyIs is);

  [[nodiscard]] int64_t applied_count() const { return applied_; }
  [[nodiscard]] int64_t acknowledged_count() const { return acknowledged_; }
  /// Pushes that were acknowledged and found in a copy that must have them.
  [[nodiscard]] int64_t kept_count() const { return kept_; }

 private:
  struct Applied {
    float times = 0;  ///< To its first row.
    bool is_whole = false;
  };
  static Applied applied(const Push& push, const tensor::Tensor& variable);

  std::vector<Push> pushes_;
  std::vector<int64_t> next_row_;  // by place
  std::set<uint64_t> read_;        // lives
  int64_t applied_ = 0;
  int64_t acknowledged_ = 0;
  int64_t kept_ = 0;
  Ledger* const ledger_;
};

}  // namespace sidereal::sim
