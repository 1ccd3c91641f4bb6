#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "sidereal/base/status.h"
#include "sidereal/data/batch.h"
#include "sidereal/data/data_spec.h"

namespace sidereal::data {

class BatchSource;

/// One worker's share: part `index` of `count`. Value type.
///
/// With at least as many files as parts, file i belongs to part i % count. Otherwise row r of all
/// files together (bad rows counted) belongs to part r % count, and so it is for arrays and for the
/// synthetic stream. Each row belongs to exactly one part.
struct Part {
  int64_t index = 0;
  int64_t count = 1;
};

/// How a Reader reads. Value type.
struct ReadOptions {
  Part part;
  /// The pass over the data, from 0; changes the shuffled order.
  int64_t epoch = 0;
  int64_t batch_size = 1024;
  /// Leave out a last batch that is not full.
  bool drop_partial = false;
  /// So many rows of the pass were given out by a reader before, with the same spec, part and
  /// epoch: this one begins behind them and gives out what that one would have.
  int64_t rows_before = 0;
  /// When not null and set by another thread, open() and next() soon return kCancelled. Borrowed.
  const std::atomic<bool>* stop = nullptr;
};

/// Reads one pass over a part of a data set in batches. Deterministic: the same spec, options and
/// files give the same batches.
///
/// Thread: core-local.
class Reader {
 public:
  /// Opens the data; errors as of inspect().
  static Result<std::unique_ptr<Reader>> open(const DataSpec& spec, const ReadOptions& options);

  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// Reads the next batch into `batch`, reusing its memory; false at the end of the data.
  /// kInvalidArgument with file and line for a bad row (unless skipped); kDataLoss for a damaged
  /// gzip file; kCancelled when stopped. After an error, do not read on.
  Result<bool> next(Batch* batch);

  /// How far reading has come.
  [[nodiscard]] const ReadStats& stats() const;

 private:
  explicit Reader(std::unique_ptr<BatchSource> source);

  std::unique_ptr<BatchSource> source_;
  ReadOptions options_;
  int64_t given_ = 0;  // Rows of the pass, with those before.
};

}  // namespace sidereal::data
