#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/data/random.h"
#include "sidereal/data/row_parser.h"

namespace sidereal::data {

/// Holds up to `capacity` rows and gives them back in random order. Each row is kept as one packed
/// string of its numbers, so it costs about its parsed size plus 48 bytes.
/// Thread: core-local.
class ShuffleBuffer {
 public:
  ShuffleBuffer(int64_t capacity, uint64_t key) : capacity_(capacity), random_(key) {}

  [[nodiscard]] bool full() const { return static_cast<int64_t>(rows_.size()) >= capacity_; }
  [[nodiscard]] bool empty() const { return rows_.empty(); }

  /// Adds a row; only while not full().
  void add(const Row& row);
  /// Takes a random row out into `row`; only while not empty().
  void take(Row* row);
  /// Takes a random row out into `out` and puts `row` in its place; only while not empty().
  void swap(const Row& row, Row* out);

 private:
  void pack(const Row& row);
  static void unpack(const std::string& bytes, Row* row);

  int64_t capacity_;
  Random random_;
  std::vector<std::string> rows_;
  std::string packed_;
};

}  // namespace sidereal::data
