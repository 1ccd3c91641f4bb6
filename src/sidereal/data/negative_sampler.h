#pragma once

#include <cstdint>
#include <vector>

#include "sidereal/data/data_spec.h"
#include "sidereal/data/random.h"
#include "sidereal/data/row_parser.h"

namespace sidereal::data {

/// Makes the negatives of rows: those of a row follow from the key, its number, and the rows before
/// it.
/// Thread: core-local.
class NegativeSampler {
 public:
  /// `labels`: how many of the last numbers in Row::dense are labels too.
  NegativeSampler(const Negatives& how, const NegativeSlot& slot, size_t labels, uint64_t key)
      : how_(how), slot_(slot), labels_(labels), key_(key), random_(key) {}

  /// Takes in a row that was read.
  void see(const Row& row);
  /// The next negative of the row that was seen last, if it has one more. There is none of a row
  /// before which no other value stood, or whose value is the only token.
  bool next(Row* row);

 private:
  bool draw(int64_t own, int64_t* id);
  bool draw_token(int64_t own, int64_t* id);
  bool draw_recent(int64_t own, int64_t* id);

  const Negatives how_;
  const NegativeSlot slot_;
  const size_t labels_;
  const uint64_t key_;
  uint64_t rows_ = 0;
  Random random_;  // Of the row that was seen last.
  Row positive_;
  int64_t left_ = 0;
  // Ids of rows shortly before, the oldest of which the next one replaces.
  std::vector<int64_t> recent_;
  size_t oldest_ = 0;
};

}  // namespace sidereal::data
