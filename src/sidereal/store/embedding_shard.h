#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/kernels/initializer.h"
#include "sidereal/kernels/optimizer_rules.h"
#include "sidereal/kernels/shard_layout.h"
#include "sidereal/tensor/buffer.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::store {

using kernels::Initializer;
using kernels::UpdateRule;

/// What one shard of an embedding table is made from.
struct EmbeddingOptions {
  std::string name;
  /// How the whole table is split, and which part this shard is.
  kernels::ShardLayout layout;
  int32_t shard = 0;
  /// Width of a row.
  int64_t dim = 0;
  UpdateRule rule;
  /// Indexed by (global row * dim + column): the same values however the table is split.
  Initializer initializer;
  /// Rows of this shard with slots and padding may take this many bytes.
  size_t bytes_max = size_t{1} << 40;
};

/// The rows of a float32 embedding table that one lane owns. A row holds its weights and then its
/// optimizer slots, padded, so an apply touches one place in memory.
///
/// Rows are named by their local index in [0, rows()); see kernels::ShardLayout for the global row.
/// Indices come from peers and are checked on every call: a bad one is kOutOfRange naming the
/// table, the row and the size, and then nothing has changed.
/// Thread: core-local.
class EmbeddingShard {
 public:
  /// What happened to a shard so far.
  struct Counters {
    int64_t gathers = 0;
    int64_t rows_read = 0;
    int64_t applies = 0;
    int64_t rows_written = 0;
  };

  /// Allocates and initialises. kInvalidArgument for a bad initializer, dim or shard number;
  /// kResourceExhausted past bytes_max or when the machine has no such memory.
  static Result<std::unique_ptr<EmbeddingShard>> create(EmbeddingOptions options);

  EmbeddingShard(const EmbeddingShard&) = delete;
  EmbeddingShard& operator=(const EmbeddingShard&) = delete;

  /// out[i] = the weights of rows[i]; `out` has room for rows.size() * dim().
  Status gather(std::span<const int64_t> rows, float* out);
  /// One step of the update rule on distinct rows; grads is [rows.size(), dim()]. A call with no
  /// rows counts as a step too. `step` numbers the update (the t of Adam, from 1); 0 means the
  /// number of applies of this shard. Pass it, or push to every shard each step, and the result
  /// does not depend on the number of shards.
  Status apply(std::span<const int64_t> rows, const float* grads, int64_t step = 0);

  /// Weights of rows [from, from + count) into `out`; kOutOfRange outside the shard.
  Status read_rows(int64_t from, int64_t count, float* out) const;
  /// All weights, [rows(), dim()].
  [[nodiscard]] tensor::Tensor read_all() const;
  /// Whole rows without padding, weights then slots, [count, row_floats()]: for checkpoints.
  Status read_rows_with_slots(int64_t from, int64_t count, float* out) const;
  /// Sets the weights of `rows` from values [rows.size(), dim()]; the slots stay.
  Status assign_rows(std::span<const int64_t> rows, const float* values);
  /// Sets rows [from, from + count) from what read_rows_with_slots() gave.
  Status assign_rows_with_slots(int64_t from, int64_t count, const float* values);

  /// Later applies use `factor` times the learning rate given to create(); finite and >= 0.
  void scale_learning_rate(double factor) { rate_factor_ = factor; }
  [[nodiscard]] const std::string& name() const { return options_.name; }
  [[nodiscard]] const kernels::ShardLayout& layout() const { return options_.layout; }
  [[nodiscard]] int32_t shard() const { return options_.shard; }
  [[nodiscard]] const UpdateRule& rule() const { return options_.rule; }
  [[nodiscard]] int64_t dim() const { return options_.dim; }
  [[nodiscard]] int64_t rows() const { return rows_; }
  /// Floats of a row in use: dim() for the weights and for each slot, 1 for a slot of rows.
  [[nodiscard]] int64_t row_floats() const { return row_floats_; }
  /// Floats from one row to the next: row_stride(row_floats()).
  [[nodiscard]] int64_t stride() const { return stride_; }
  [[nodiscard]] size_t bytes() const;
  [[nodiscard]] const Counters& counters() const { return counters_; }
  /// Number of applies so far. set_applies() is for restoring a checkpoint.
  [[nodiscard]] int64_t applies() const { return counters_.applies; }
  void set_applies(int64_t applies) { counters_.applies = applies; }

 private:
  explicit EmbeddingShard(EmbeddingOptions options) : options_(std::move(options)) {}

  void initialise();
  Status check_rows(std::span<const int64_t> rows) const;
  Status check_range(int64_t from, int64_t count) const;
  [[nodiscard]] float* row(int64_t index) const;

  EmbeddingOptions options_;
  int64_t rows_ = 0;
  int64_t row_floats_ = 0;
  int64_t stride_ = 0;
  tensor::Buffer::Ptr memory_;
  Counters counters_;
  double rate_factor_ = 1;
};

}  // namespace sidereal::store
