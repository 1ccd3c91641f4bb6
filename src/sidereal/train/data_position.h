#pragma once

#include <cstdint>
#include <vector>

#include "sidereal/service/session.h"

/// Which rows a training has been through, and who reads those that are left. Internal to train.
namespace sidereal::train {

/// A pass over a part of the data that was begun. Value type.
struct BegunPass {
  int64_t epoch = 0;
  int64_t part = 0;
  int64_t parts = 1;
  int64_t rows_done = 0;  ///< In the order of this part and epoch.

  friend bool operator==(const BegunPass&, const BegunPass&) = default;
};

/// Where in the data a training is. Value type.
struct DataPosition {
  std::vector<BegunPass> begun;  ///< What is left of passes before `next_epoch`.
  int64_t next_epoch = 0;        ///< All rows of this one and of those that follow are left.

  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

/// Deals what is left of the data to the lanes of workers, and keeps note of what they have done.
/// Parts that others have begun stay as they are, so that their order of rows does, on however many
/// lanes: each row is read once.
/// Thread: core-local.
class DataSchedule {
 public:
  DataSchedule(const DataPosition& from, const std::vector<int>& lanes_of_workers);

  /// The first epoch of which something is left; of epochs below `end`, or `end`.
  [[nodiscard]] int64_t first_epoch(int64_t end) const;
  /// The epoch of a pass of a loop that was told what it reads of epochs below `end`; `lane` is of
  /// the worker.
  [[nodiscard]] int64_t epoch_of(size_t worker, int64_t end, size_t lane, int64_t pass) const;
  /// The first epoch of which the lanes of a worker may have something left when the loop that was
  /// told so is at `positions`.
  [[nodiscard]] int64_t begun_epoch(size_t worker, int64_t end,
                                    const std::vector<task::LoopPosition>& positions) const;
  /// Tells the loop of a worker what it reads of epochs below `end`.
  void tell(size_t worker, int64_t end, task::LoopOptions* loop) const;
  /// What a loop that was told so has done, whatever ended it: `positions` of the lanes of the
  /// worker. What a lane has not told of is left.
  void took(size_t worker, int64_t end, const std::vector<task::LoopPosition>& positions);
  /// Leaves out what is left of epochs below `end`.
  void leave_out(int64_t end);
  [[nodiscard]] DataPosition position() const;

 private:
  struct Lane {
    std::vector<BegunPass> begun;
    int64_t next_epoch = 0;
  };

  [[nodiscard]] int64_t whole_from(size_t worker, int64_t end) const;
  [[nodiscard]] std::vector<BegunPass> passes_of(size_t lane, int64_t below) const;

  std::vector<size_t> first_lane_;  // By worker, and one more.
  std::vector<Lane> lanes_;         // Of all workers.
};

}  // namespace sidereal::train
