#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/tensor/tensor.h"

namespace sidereal::data {

/// How far a reader has come. Value type.
struct ReadStats {
  /// Good rows read so far.
  int64_t rows_read = 0;
  /// Bad rows passed over (only with BadRows::kSkip).
  int64_t rows_skipped = 0;
  /// Of rows_read, those that a reader before this one gave out: see ReadOptions::rows_before.
  int64_t rows_before = 0;
  /// Bytes read from files, before decompression.
  int64_t bytes_read = 0;
  /// Part of the data read, 0 to 1, by position in the (compressed) files.
  double progress = 0;
  /// What was wrong with the first row passed over; empty when none was.
  std::string first_skipped;
};

/// Some rows of a data set as tensors. B = rows.
///
/// Reading into a batch again reuses its memory unless somebody else still holds a tensor of it.
/// Value type.
struct Batch {
  /// Rows in this batch: the batch size, fewer in the last one.
  int64_t rows = 0;
  /// Which pass over the data the rows belong to, from 0.
  int64_t epoch = 0;
  /// Which pass of a PrefetchingReader the rows belong to, from 0.
  int64_t pass = 0;
  /// Rows of its pass up to the end of this batch, with those given out before.
  int64_t pass_rows = 0;
  /// f32 [B]. Undefined for data without a label.
  tensor::Tensor label;
  /// f32 [B, Schema::dense_width]. Undefined when there are no numeric columns.
  tensor::Tensor dense;
  /// i64 [B, F], each in [0, Schema::rows). F = Schema::fields; for libsvm the longest row of this
  /// batch (at least 1), shorter rows filled with id -1 and weight 0.
  tensor::Tensor ids;
  /// f32 [B, F], the value beside each id. libsvm only.
  tensor::Tensor weights;
  /// f32 [B], how much each row counts, 0 or more. Only where DataSpec::weight names a column.
  tensor::Tensor sample_weight;
  /// f32 [B], the true probability of label 1. Synthetic data only.
  tensor::Tensor truth;
  /// Every column of array data under its name: dtype of the file, shape [B, ...].
  std::vector<std::pair<std::string, tensor::Tensor>> columns;
  /// The reader's state after this batch.
  ReadStats stats;

  /// The tensor of column `name`, or nullptr.
  [[nodiscard]] const tensor::Tensor* find(const std::string& name) const {
    for (const auto& [key, value] : columns) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

}  // namespace sidereal::data
