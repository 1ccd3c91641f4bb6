#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

/// Loops of sessions: what they run, and what they tell.
namespace sidereal::task {

/// What a loop keeps of the values that a fetch has in its steps.
enum class Keep : uint8_t {
  kMean,    ///< The mean and the last one, of numbers without extents.
  kSeries,  ///< As kMean, and each number.
  kEach,    ///< Each value, of any dtype and shape.
  kLast,    ///< The last one, of any dtype and shape.
  kFinite,  ///< As kMean; the first number that is not finite ends the loop with an error.
};

/// A fetch of a loop. Value type.
struct LoopFetch {
  std::string name;  ///< A value of the graph: "node" or "node:1".
  Keep keep = Keep::kMean;
};

/// What is left of a pass over a part of the rows that another loop has begun. Value type.
struct LoopPass {
  int64_t lane = 0;  ///< Of the loop, which reads it.
  int64_t epoch = 0;
  int64_t part_index = 0;
  int64_t part_count = 1;
  int64_t rows_done = 0;  ///< Rows of it, in its order, that are left out.
};

/// What a loop runs. Value type.
struct LoopOptions {
  std::vector<LoopFetch> fetches;
  std::vector<std::string> targets;

  /// What is read on the master's task, as JSON of data::DataSpec; "": nothing, then `steps` says
  /// how many steps there are.
  std::string source;
  /// Values of the graph and the columns of the data that are fed there: names of arrays, or label,
  /// dense, ids, weights, truth (data/batch.h).
  std::vector<std::pair<std::string, std::string>> columns;
  /// Values of the graph that are the same in all steps.
  std::vector<std::pair<std::string, tensor::Tensor>> constants;
  /// A value of the graph, int64 [], that is the number of a lane in its steps: those of lane i are
  /// first_replica + i. "": none.
  std::string replica;
  int64_t first_replica = 0;
  /// Columns that come back with each step.
  std::vector<std::string> kept_columns;
  int64_t batch_size = 1024;
  bool drop_partial = false;  ///< Leave out a last batch that is not full.
  /// What lanes read before `epochs`, in this order.
  std::vector<LoopPass> started;
  int64_t first_epoch = 0;  ///< Decides the shuffled order.
  int64_t epochs = 1;       ///< 0: only what was begun.
  /// Which part of the rows is read, of how many. See data::Part.
  int64_t part_index = 0;
  int64_t part_count = 1;
  /// Lane i reads part part_index + i. Else lanes share the part.
  bool part_each_lane = false;

  /// Whether another loop of the session goes on where this one ends: what was read ahead is kept
  /// for that.
  bool goes_on = false;

  /// Steps at most, of all lanes together, which have the same number each, or one more; 0: until
  /// the data ends.
  int64_t steps = 0;
  /// Steps that a lane may begin beyond those that the client has said to have heard of; 0: any.
  int64_t ahead_max = 0;
  /// How many steps of a lane compute at once. With 1 each sees all that the one before it changed.
  int64_t steps_in_flight = 1;
  /// Lanes of the master's task, each with a part of the rows of its own; 0: all.
  int64_t lanes = 1;
  /// What random ops of the first step take for its number; those of lane i of n then are
  /// first_step + i, first_step + i + n, ... 0: the next of the session.
  uint64_t first_step = 0;
  /// Steps with numbers [trace_first, trace_end) are traced; as processes from `trace_process` on.
  uint64_t trace_first = 0;
  uint64_t trace_end = 0;
  int32_t trace_process = 1;

  /// AUC of the latest rows: a fetch by its number, with a probability (float32) for each row, and
  /// the column of labels; -1: none.
  int64_t auc_fetch = -1;
  std::string auc_labels = "label";
  int64_t auc_window_rows = 200'000;

  std::chrono::milliseconds step_timeout{0};        ///< Of each step; 0: the session's.
  std::chrono::milliseconds data_timeout{300'000};  ///< For data that does not come.
};

/// What one fetch was so far, on one lane or on all. Value type.
struct LoopScalar {
  static constexpr size_t kLatest = 100;

  double sum = 0;
  double last = 0;
  int64_t steps = 0;
  /// Of the latest kLatest steps of each lane, or of all if there are fewer.
  double latest_sum = 0;
  int64_t latest_steps = 0;
};

/// What the first fetch was in the steps of one pass of one lane. Value type.
struct LoopPassMean {
  int32_t lane = 0;
  int64_t pass = 0;  ///< As in LoopPosition.
  double sum = 0;
  int64_t steps = 0;
};

/// How far one lane of a loop has come. Value type.
struct LoopPosition {
  int64_t steps = 0;
  int64_t pass = 0;  ///< Of the latest step's rows: those of `started` of its lane, then epochs.
  int64_t rows = 0;  ///< Of that pass, with those that were done before.
  /// All that the lane had to read is read, and its steps have ended.
  bool is_end = false;
};

/// Totals of a loop so far: of one lane, or added up. Value type.
struct LoopProgress {
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t rows_skipped = 0;
  std::string first_skipped;  ///< What was wrong with the first of them.
  double fraction = 0;        ///< Of the data, 0 to 1; 0 without data.
  int64_t elapsed_ns = 0;     ///< From the beginning of the first step to the end of the latest.
  int64_t computed_ns = 0;    ///< Of the task's lanes, on these steps.
  int64_t waited_ns = 0;      ///< The rest: for answers, for data, for what else lanes do.
  int64_t waited_for_data_ns = 0;
  int64_t bytes_in = 0;  ///< Of the lanes, since the loop began.
  int64_t bytes_out = 0;
  double auc = 0;                       ///< 0: none, or no rows yet.
  std::vector<LoopScalar> scalars;      ///< By fetch; of those kept as kMean or kSeries.
  std::vector<LoopPosition> positions;  ///< By lane; of one lane, its own.
  /// Of passes that have ended since the progress before, each once; of a lane's last one when the
  /// lane ends.
  std::vector<LoopPassMean> passes;
};

/// What the fetches and kept columns of one step were. Value type.
struct LoopValues {
  int32_t lane = 0;
  int64_t step = 0;  ///< Of its lane, from 0.
  int64_t rows = 0;
  /// By index: those of fetches, by their number, then of kept columns.
  std::vector<std::pair<int32_t, tensor::Tensor>> values;
};

/// How a loop ended. Value type.
struct LoopResult {
  LoopProgress progress;
  /// By fetch: each number of those kept as kSeries, lane after lane.
  std::vector<std::vector<double>> series;
  /// By fetch: the last value of those kept as kLast; undefined without a step.
  std::vector<tensor::Tensor> last;
  /// Elements of Chrome's trace format, for each step that was traced.
  std::vector<std::string> traces;
};

/// Who hears of a loop. Value type; all may be nullptr.
struct LoopObserver {
  /// Totals, a few times a second.
  std::function<void(const LoopProgress&)> on_progress;
  /// Values of fetches kept as kEach, and of kept columns; those of a lane in the order of steps.
  std::function<void(LoopValues)> on_values;
  /// A lane has had its last step. Once for each, after all else that is told of it.
  std::function<void(int32_t lane)> on_lane_end;
  /// Asked several times a second: true ends the loop with kCancelled, whatever its master does.
  std::function<bool()> is_cancelled;
  /// Asked as often: true cancels its steps. It ends with kCancelled when its lanes have told what
  /// they have done.
  std::function<bool()> stops;
  /// Asked as often: true lets no step begin any more. The loop ends well when those have ended
  /// that have begun.
  std::function<bool()> drains;
};

}  // namespace sidereal::task
