#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sidereal/resources/variable.h"
#include "sidereal/tensor/buffer.h"

namespace sidereal::resources {

/// Moves variables that are updated by rows together, weights and slots, to one table: a row of it
/// holds a row of each of them side by side, so that an update touches one place in memory. They
/// stay variables of their own names; what differs is where their elements are.
///
/// What moves is given back as it moves, so that big variables are not there twice; what others
/// hold stays theirs.
/// Lifecycle: plan(), move() all rows, finish(), while the variables are locked.
/// Thread: move() on any threads at once, of different rows.
class RowLayout {
 public:
  /// The variables of `values` that go to a table: the first, the weights, and those slots of it
  /// that are float32, have as many rows and are in no table. Nothing when it has none of these, is
  /// in a table, fits into a few cache lines anyway, or there is no memory: it is left then as it
  /// is, for good.
  static std::optional<RowLayout> plan(std::span<Variable::Value* const> values);
  /// The same of values that no variable has yet, and that are in no table. With finish() they are
  /// as Variable::take() has them with stride(); those that were left out stay as they are.
  static std::optional<RowLayout> plan(std::span<tensor::Tensor* const> values);

  [[nodiscard]] int64_t rows() const { return rows_; }
  /// Bytes from one row of the table to the next.
  [[nodiscard]] int64_t stride() const { return stride_; }
  /// Whether it takes a value of plan().
  [[nodiscard]] bool takes(const tensor::Tensor* value) const;

  /// Copies rows [begin, end) of all to the table.
  void move(int64_t begin, int64_t end) const;
  /// From here on the variables are in the table.
  void finish();

 private:
  struct Column {
    tensor::Tensor* value;
    Variable::Value* of;  ///< nullptr: no variable's.
    int64_t bytes;        ///< Of a row.
    int64_t offset;       ///< In a row of the table.
    bool is_sole;         ///< Its memory is nobody else's.
  };
  /// Of weights of these rows.
  explicit RowLayout(const tensor::Tensor& weights) : rows_(Rows::of(weights).count) {}
  void add(tensor::Tensor* value, Variable::Value* of);
  [[nodiscard]] bool fits(const tensor::Tensor& value) const;
  bool allocate();

  std::vector<Column> columns_;
  int64_t rows_ = 0;
  int64_t width_ = 0;  // In bytes, of all columns.
  int64_t stride_ = 0;
  tensor::Buffer::Ptr memory_;
};

}  // namespace sidereal::resources
