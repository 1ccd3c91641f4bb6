#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/serving/histogram.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::serving {

using tensor::Tensor;
using Columns = std::vector<Tensor>;
using Clock = std::chrono::steady_clock;

/// What a signature computes: tensors by output of tensors by input. Thread: one call at a time, on
/// any thread.
class Model {
 public:
  virtual ~Model() = default;
  virtual Result<Columns> call(const Columns& columns) = 0;
};

struct BatchOptions {
  int64_t rows_max = 1024;              ///< Of one call; 1: each request is a call of its own.
  std::chrono::nanoseconds timeout{0};  ///< How long a request waits for others.
  int64_t queue_max = 8192;             ///< Rows that may wait.
};

/// A request that waits for its outputs. Thread: any.
class Waiting {
 public:
  /// Told once: outputs, or an error.
  using Done = std::function<void(Result<Columns>)>;
  /// `rows` below 0: not by rows, so it has a call of its own.
  Waiting(Columns columns, int64_t rows, Clock::time_point deadline, Done done)
      : columns_(std::move(columns)), deadline_(deadline), rows_(rows), done_(std::move(done)) {}

  /// Answers, if it was not answered or cancelled before.
  void finish(Result<Columns> outputs);
  /// Nobody waits for it any more. False when it has an answer, or just gets it.
  bool cancel();

 private:
  friend class Batcher;
  [[nodiscard]] bool is_open() const { return !is_ended_.load(std::memory_order_acquire); }
  [[nodiscard]] int64_t count() const { return rows_ < 0 ? 1 : rows_; }
  [[nodiscard]] bool goes_with(const Waiting& other) const;

  const Columns columns_;
  const Clock::time_point deadline_;
  int64_t rows_;  // The batcher's, under its lock.
  Done done_;     // Owned by the thread that ends the request.
  std::atomic<bool> is_ended_ = false;
};

/// What calls of models were like. Thread: any.
struct BatchFigures {
  Histogram rows{{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}};
  Histogram seconds{seconds_bounds()};
};

/// The calls of one signature, one at a time, each for as many requests as wait, in their order.
///
/// Who submits says flush() when it has nothing more at the moment. A call that was short so far
/// then runs on that thread, which saves the way to another one; a longer one, or one that waits
/// for others, on a thread of the batcher.
/// Thread: any. `done` of a request runs on the thread of the call, of sweep() or of submit()'s
/// caller, and may submit.
class Batcher {
 public:
  Batcher(std::string name, std::unique_ptr<Model> model, const BatchOptions& options,
          std::shared_ptr<BatchFigures> figures);
  /// Waits for the call that runs. What waits is told kCancelled.
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  /// Has a request answered, at its deadline at the latest where sweep() is called. `columns`
  /// have the dtypes of the inputs.
  /// Errors: kResourceExhausted when too many rows wait; kUnavailable after close().
  Result<std::shared_ptr<Waiting>> submit(Columns columns, int64_t rows, Clock::time_point deadline,
                                          Waiting::Done done);
  /// Has what waits run.
  void flush();
  /// Tells those whose time is over. True while anything waits.
  bool sweep(Clock::time_point now);

  [[nodiscard]] int64_t waiting_rows() const;
  [[nodiscard]] bool is_running() const;
  /// Takes no requests any more.
  void close();
  /// Whether everything is answered, within `limit`.
  bool wait_idle(std::chrono::nanoseconds limit);

 private:
  using Taken = std::vector<std::shared_ptr<Waiting>>;

  [[nodiscard]] Status too_late() const;
  [[nodiscard]] bool is_due(Clock::time_point now) const;
  [[nodiscard]] bool is_short() const;
  Taken take(Clock::time_point now);
  /// One call, without the lock that it is called with.
  void run_one(std::unique_lock<std::mutex>* lock);
  Result<Columns> call(const Taken& taken);
  void answer(Taken* taken, int64_t rows, Result<Columns> outputs);
  void separately(Taken* taken);
  void run();

  const std::string name_;
  const std::unique_ptr<Model> model_;
  const BatchOptions options_;
  const std::shared_ptr<BatchFigures> figures_;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  std::deque<std::shared_ptr<Waiting>> queue_;
  Taken running_;  // With cancelled ones, which are not computed.
  int64_t rows_ = 0;
  Clock::time_point since_;         // The first of what waits came then.
  std::array<double, 64> seconds_;  // Of the last call, by the bits of its rows.
  bool is_running_ = false;
  bool is_closed_ = false;
  bool is_ended_ = false;
  bool is_wanted_ = false;  // The thread is to look at the queue.
  std::thread thread_;      // Begun when it is needed.
};

}  // namespace sidereal::serving
