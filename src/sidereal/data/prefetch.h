#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/data/batch.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/reader.h"

namespace sidereal::data {

class BatchRing;

/// What is left of a pass over a part of the data that another reader has begun. Value type.
struct StartedPass {
  Part part;
  int64_t epoch = 0;
  int64_t rows_before = 0;  ///< See ReadOptions.
};

/// How a PrefetchingReader reads. Value type.
struct PrefetchOptions {
  /// `read.epoch` is the first pass; `read.stop` is ignored.
  ReadOptions read;
  /// Come before the passes of `epochs`.
  std::vector<StartedPass> started = {};
  /// Passes over the data. Batches never mix passes.
  int64_t epochs = 1;
  /// Batches read ahead at most; when so many wait, reading pauses.
  int64_t batches_ahead = 8;
};

/// Reads on a thread of its own, so that batches are ready when the model wants them.
///
/// Memory: at most batches_ahead + 2 batches, plus what the consumer keeps.
/// Thread: next(), stop() and stats() from one consumer thread. The reading thread ends at the end
///         of the data, on an error, or soon after stop(); the destructor stops and joins it.
class PrefetchingReader {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Opens the data (errors as of Reader::open()) and starts reading. `stopped`: set by another
  /// thread, it ends opening, and reading soon; nullptr: nobody sets it.
  static Result<std::unique_ptr<PrefetchingReader>> open(
      const DataSpec& spec, const PrefetchOptions& options,
      std::shared_ptr<std::atomic<bool>> stopped = nullptr);

  ~PrefetchingReader();
  PrefetchingReader(const PrefetchingReader&) = delete;
  PrefetchingReader& operator=(const PrefetchingReader&) = delete;

  /// Moves the next batch into `batch`, whose old tensors are given back for reuse; false after the
  /// last one. Errors of the reader come out here, after the batches before them; kDeadlineExceeded
  /// says how far reading had come (nothing is lost, call again); kCancelled after stop().
  Result<bool> next(Batch* batch, Deadline deadline);

  /// Ends reading; the thread is joined in the destructor. May be called more than once.
  void stop();

  /// A descriptor that becomes readable when next() may have something to give, for a poller.
  /// Owned by the reader.
  [[nodiscard]] int ready_fd() const;

  /// Whether what is left is exactly what a reader opened like this would give out. Then it gives
  /// that out, and counts as that one would, from now on.
  bool go_on_as(const DataSpec& spec, const PrefetchOptions& options);

  /// The state after the batch last given out, over all passes; after the end, the totals. Its
  /// progress is that of the rows given out, not of those read ahead, among the passes that this
  /// reader, or go_on_as(), was asked for.
  [[nodiscard]] const ReadStats& stats() const { return stats_; }

 private:
  PrefetchingReader(DataSpec spec, const PrefetchOptions& options,
                    std::shared_ptr<std::atomic<bool>> stopped);
  void count(Batch* batch);
  void read_all(std::unique_ptr<Reader> reader);
  Status read_pass(Reader* reader, int64_t pass);

  const DataSpec spec_;
  PrefetchOptions options_;
  std::unique_ptr<BatchRing> ready_;
  std::unique_ptr<BatchRing> spare_;
  // Set by stop(), read by the reading thread; no data travels with it, so relaxed order is enough.
  const std::shared_ptr<std::atomic<bool>> stopped_;
  // Both written by the reading thread before it closes ready_, and read by others only after
  // ready_ is seen closed: the totals of the passes finished, and what went wrong.
  ReadStats before_;
  Status error_;
  ReadStats stats_;
  // Of whoever takes batches: where it is, and where go_on_as() was.
  int64_t pass_ = 0;
  int64_t pass_rows_ = 0;
  int64_t pass_before_ = 0;
  ReadStats stats_before_;
  std::thread thread_;
};

}  // namespace sidereal::data
