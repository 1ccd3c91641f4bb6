#include "sidereal/serving/batcher.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

namespace sidereal::serving {

namespace {

/// A call that took less at its last time runs where flush() is said.
constexpr double kShort = 0.002;
/// Calls that flush() makes: what comes for ever is the thread's.
constexpr int kCallsOfFlush = 4;

/// Rows of several tensors below one another.
Tensor joined(const std::vector<const Tensor*>& parts) {
  tensor::Shape shape = parts.front()->shape();
  int64_t rows = 0;
  for (const Tensor* part : parts) rows += part->shape().dim(0);
  shape.set_dim(0, rows);
  Tensor out = Tensor::empty(parts.front()->dtype(), shape);
  std::byte* at = out.raw();
  for (const Tensor* part : parts) {
    if (part->nbytes() == 0) continue;
    std::memcpy(at, part->raw(), part->nbytes());
    at += part->nbytes();
    // The strings that views show.
    out.buffer()->keep_all_of(*part->buffer());
  }
  return out;
}

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

}  // namespace

void Waiting::finish(Result<Columns> outputs) {
  if (is_ended_.exchange(true, std::memory_order_acq_rel)) return;
  const Done done = std::exchange(done_, nullptr);
  done(std::move(outputs));
}

bool Waiting::cancel() {
  if (is_ended_.exchange(true, std::memory_order_acq_rel)) return false;
  done_ = nullptr;
  return true;
}

bool Waiting::goes_with(const Waiting& other) const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto mine = columns_[i].shape().dims();
    const auto theirs = other.columns_[i].shape().dims();
    if (columns_[i].dtype() != other.columns_[i].dtype() || mine.empty() || theirs.empty() ||
        !std::equal(mine.begin() + 1, mine.end(), theirs.begin() + 1, theirs.end())) {
      return false;
    }
  }
  return true;
}

Batcher::Batcher(std::string name, std::unique_ptr<Model> model, const BatchOptions& options,
                 std::shared_ptr<BatchFigures> figures)
    : name_(std::move(name)),
      model_(std::move(model)),
      options_(options),
      figures_(std::move(figures)) {
  seconds_.fill(kShort);  // Nothing is known to be short.
}

Batcher::~Batcher() {
  std::deque<std::shared_ptr<Waiting>> left;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = is_ended_ = true;
    left.swap(queue_);
    rows_ = 0;
    work_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  for (const auto& one : left) one->finish(base::cancelled("'{}' is not served any more", name_));
}

Result<std::shared_ptr<Waiting>> Batcher::submit(Columns columns, int64_t rows,
                                                 Clock::time_point deadline, Waiting::Done done) {
  auto made = std::make_shared<Waiting>(std::move(columns), rows, deadline, std::move(done));
  const int64_t count = made->count();
  const std::lock_guard lock(mutex_);
  if (is_closed_) return base::unavailable("'{}' is not served any more; ask again", name_);
  if (rows_ > 0 && rows_ + count > options_.queue_max) {
    return base::resource_exhausted(
        "{} rows wait for '{}', and {} may (--queue-rows); ask again later, or more servers", rows_,
        name_, options_.queue_max);
  }
  if (queue_.empty()) since_ = Clock::now();
  queue_.push_back(made);
  rows_ += count;
  return made;
}

bool Batcher::is_due(Clock::time_point now) const {
  return options_.timeout.count() == 0 || rows_ >= options_.rows_max || is_closed_ ||
         now >= since_ + options_.timeout;
}

bool Batcher::is_short() const {
  const auto rows = static_cast<uint64_t>(std::clamp<int64_t>(rows_, 0, options_.rows_max));
  return seconds_[std::bit_width(rows)] < kShort;
}

void Batcher::flush() {
  std::unique_lock lock(mutex_);
  for (int n = 0; n < kCallsOfFlush && !is_running_ && !queue_.empty(); ++n) {
    if (!is_due(Clock::now()) || !is_short()) break;
    run_one(&lock);
  }
  // Who runs looks at the queue again.
  if (is_running_ || queue_.empty()) return;
  is_wanted_ = true;
  if (!thread_.joinable() && !is_ended_) thread_ = std::thread([this] { run(); });
  work_.notify_all();
}

Batcher::Taken Batcher::take(Clock::time_point now) {
  Taken taken;
  int64_t rows = 0;
  while (!queue_.empty()) {
    const std::shared_ptr<Waiting>& first = queue_.front();
    if (first->is_open() && first->deadline_ > now) {
      const bool is_other =
          !taken.empty() && (first->rows_ < 0 || rows + first->rows_ > options_.rows_max ||
                             !first->goes_with(*taken.front()));
      if (is_other) break;
      taken.push_back(first);
      rows += first->count();
    }
    rows_ -= first->count();
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
    if (!taken.empty() && (taken.back()->rows_ < 0 || rows >= options_.rows_max)) break;
  }
  since_ = now;
  return taken;
}

void Batcher::run_one(std::unique_lock<std::mutex>* lock) {
  const Clock::time_point began = Clock::now();
  Taken taken = take(began);
  Taken late = running_;
  is_running_ = true;
  lock->unlock();
  for (const auto& one : late) {
    if (one->deadline_ <= began) one->finish(too_late());
  }
  late.clear();
  int64_t rows = 0;
  double seconds = 0;
  if (!taken.empty()) {
    for (const auto& one : taken) rows += one->count();
    const Clock::time_point start = Clock::now();
    Result<Columns> outputs = call(taken);
    seconds = seconds_since(start);
    figures_->rows.observe(static_cast<double>(rows));
    figures_->seconds.observe(seconds);
    answer(&taken, rows, std::move(outputs));
    taken.clear();
  }
  lock->lock();
  if (rows > 0) seconds_[std::bit_width(static_cast<uint64_t>(rows))] = seconds;
  Taken gone;
  gone.swap(running_);
  is_running_ = false;
  if (queue_.empty()) idle_.notify_all();
  if (is_ended_) work_.notify_all();
  // Releasing a column's memory may take locks of others, which wait for this one.
  lock->unlock();
  gone.clear();
  lock->lock();
}

Status Batcher::too_late() const {
  return base::deadline_exceeded("'{}' gave no answer in the time the request had", name_);
}

Result<Columns> Batcher::call(const Taken& taken) {
  if (taken.size() == 1) return model_->call(taken.front()->columns_);
  Columns columns;
  columns.reserve(taken.front()->columns_.size());
  std::vector<const Tensor*> parts(taken.size());
  for (size_t i = 0; i < taken.front()->columns_.size(); ++i) {
    for (size_t k = 0; k < taken.size(); ++k) parts[k] = &taken[k]->columns_[i];
    columns.push_back(joined(parts));
  }
  return model_->call(columns);
}

void Batcher::answer(Taken* taken, int64_t rows, Result<Columns> outputs) {
  if (taken->size() == 1) {
    taken->front()->finish(std::move(outputs));
    return;
  }
  // One request can spoil a call: the others are not to be refused for it. And what is not by rows
  // is a call for each request.
  const bool is_by_rows =
      outputs.ok() && std::all_of(outputs->begin(), outputs->end(), [&](const Tensor& out) {
        return out.shape().rank() > 0 && out.shape().dim(0) == rows;
      });
  if (!is_by_rows) {
    separately(taken);
    return;
  }
  int64_t begin = 0;
  for (const auto& one : *taken) {
    const int64_t count = one->count();
    Columns own;
    own.reserve(outputs->size());
    for (const Tensor& out : *outputs) own.push_back(out.rows(begin, count));
    begin += count;
    one->finish(std::move(own));
  }
}

void Batcher::separately(Taken* taken) {
  const std::lock_guard lock(mutex_);
  for (auto one = taken->rbegin(); one != taken->rend(); ++one) {
    if (!(*one)->is_open()) continue;
    (*one)->rows_ = -1;
    rows_ += 1;
    queue_.push_front(*one);
  }
}

void Batcher::run() {
  std::unique_lock lock(mutex_);
  while (!is_ended_) {
    if (!is_wanted_ || is_running_ || queue_.empty()) {
      // Whoever runs leaves a queue to flush(), or to this thread.
      is_wanted_ = is_wanted_ && !queue_.empty();
      work_.wait(lock);
      continue;
    }
    if (!is_due(Clock::now())) {
      work_.wait_until(lock, since_ + options_.timeout);
      continue;
    }
    run_one(&lock);
  }
}

bool Batcher::sweep(Clock::time_point now) {
  Taken late;
  bool is_busy = false;
  {
    const std::lock_guard lock(mutex_);
    const auto look = [&](const auto& all) {
      for (const auto& one : all) {
        if (one->is_open() && one->deadline_ <= now) late.push_back(one);
      }
    };
    look(running_);
    look(queue_);
    is_busy = is_running_ || !queue_.empty();
  }
  for (const auto& one : late) one->finish(too_late());
  return is_busy;
}

int64_t Batcher::waiting_rows() const {
  const std::lock_guard lock(mutex_);
  return rows_;
}

bool Batcher::is_running() const {
  const std::lock_guard lock(mutex_);
  return is_running_;
}

void Batcher::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    work_.notify_all();
  }
  flush();
}

bool Batcher::wait_idle(std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, limit, [this] { return queue_.empty() && !is_running_; });
}

}  // namespace sidereal::serving
