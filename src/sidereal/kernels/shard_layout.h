#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sidereal::kernels {

/// How the rows of a table are spread over T tasks and the lanes of each.
///
/// Over tasks by the 'div' rule of tf.fixed_size_partitioner: with base = rows / T and
/// extra = rows % T, the first `extra` tasks own base + 1 consecutive rows, the others base. Within
/// a task row r (counted from the task's first) belongs to lane r % L at index r / L. Shards are
/// numbered task by task, lane by lane.
/// Value type. Thread: immutable.
class ShardLayout {
 public:
  struct Place {
    int32_t shard;
    int64_t index;
  };

  /// One shard that owns no row.
  ShardLayout() : ShardLayout(0, 1, 1) {}
  /// `rows` in [0, 2^40) over lanes_per_task.size() >= 1 tasks, each with at least one lane; fewer
  /// than 2^23 shards.
  ShardLayout(int64_t rows, std::span<const int32_t> lanes_per_task);
  /// Every task has `lanes` lanes.
  ShardLayout(int64_t rows, int32_t tasks, int32_t lanes);

  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int32_t num_tasks() const { return static_cast<int32_t>(lanes_.size()); }
  [[nodiscard]] int32_t num_shards() const { return static_cast<int32_t>(task_of_.size()); }
  [[nodiscard]] int32_t num_lanes(int32_t task) const { return lanes_[task]; }
  /// The shard of that lane of that task.
  [[nodiscard]] int32_t shard_of(int32_t task, int32_t lane) const {
    return first_shard_[task] + lane;
  }
  [[nodiscard]] int32_t task_of(int32_t shard) const { return task_of_[shard]; }
  [[nodiscard]] int32_t lane_of(int32_t shard) const {
    return shard - first_shard_[task_of_[shard]];
  }
  /// First row of a task.
  [[nodiscard]] int64_t first_row(int32_t task) const;
  /// Number of rows of a task.
  [[nodiscard]] int64_t task_rows(int32_t task) const;
  /// Number of rows of a shard.
  [[nodiscard]] int64_t shard_rows(int32_t shard) const;
  /// The global row at `index` of a shard.
  [[nodiscard]] int64_t global_row(int32_t shard, int64_t index) const;
  /// The shard and the index in it of a row in [0, rows()).
  [[nodiscard]] Place locate(int64_t row) const;

 private:
  int64_t rows_ = 0;
  int64_t base_ = 0;
  int64_t extra_ = 0;
  std::vector<int32_t> lanes_;
  std::vector<int32_t> first_shard_;
  std::vector<int32_t> task_of_;
};

}  // namespace sidereal::kernels
