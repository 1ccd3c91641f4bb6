#include "sidereal/kernels/shard_layout.h"

#include <algorithm>

#include "sidereal/base/check.h"

namespace sidereal::kernels {
namespace {

std::vector<int32_t> same_lanes(int32_t tasks, int32_t lanes) {
  return std::vector<int32_t>(static_cast<size_t>(std::max(tasks, 0)), lanes);
}

}  // namespace

ShardLayout::ShardLayout(int64_t rows, int32_t tasks, int32_t lanes)
    : ShardLayout(rows, std::span<const int32_t>(same_lanes(tasks, lanes))) {}

ShardLayout::ShardLayout(int64_t rows, std::span<const int32_t> lanes_per_task)
    : rows_(rows), lanes_(lanes_per_task.begin(), lanes_per_task.end()) {
  SR_CHECK(rows >= 0 && rows < (int64_t{1} << 40), "a table of {} rows", rows);
  SR_CHECK(!lanes_.empty(), "a table over no task");
  const auto tasks = static_cast<int64_t>(lanes_.size());
  base_ = rows / tasks;
  extra_ = rows % tasks;
  first_shard_.reserve(lanes_.size());
  for (int32_t task = 0; task < static_cast<int32_t>(tasks); ++task) {
    SR_CHECK(lanes_[task] >= 1, "task {} has {} lanes", task, lanes_[task]);
    first_shard_.push_back(static_cast<int32_t>(task_of_.size()));
    task_of_.insert(task_of_.end(), static_cast<size_t>(lanes_[task]), task);
  }
  SR_CHECK(task_of_.size() < (size_t{1} << 23), "{} shards", task_of_.size());
}

int64_t ShardLayout::first_row(int32_t task) const {
  return task * base_ + std::min<int64_t>(task, extra_);
}

int64_t ShardLayout::task_rows(int32_t task) const { return base_ + (task < extra_ ? 1 : 0); }

int64_t ShardLayout::shard_rows(int32_t shard) const {
  const int32_t task = task_of_[shard];
  const int64_t lanes = lanes_[task];
  return (task_rows(task) - lane_of(shard) + lanes - 1) / lanes;
}

int64_t ShardLayout::global_row(int32_t shard, int64_t index) const {
  const int32_t task = task_of_[shard];
  return first_row(task) + index * lanes_[task] + lane_of(shard);
}

ShardLayout::Place ShardLayout::locate(int64_t row) const {
  const int64_t in_longer = extra_ * (base_ + 1);
  const int64_t task = row < in_longer ? row / (base_ + 1) : extra_ + (row - in_longer) / base_;
  const int64_t local = row - first_row(static_cast<int32_t>(task));
  const int64_t lanes = lanes_[task];
  return {first_shard_[task] + static_cast<int32_t>(local % lanes), local / lanes};
}

}  // namespace sidereal::kernels
