#include "sidereal/data/prefetch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/data/batch_ring.h"

namespace sidereal::data {

BatchRing::BatchRing(int64_t capacity)
    : slots_(static_cast<size_t>(capacity)), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  SR_CHECK(fd_ >= 0, "eventfd failed with error {}", errno);
}

BatchRing::~BatchRing() { ::close(fd_); }

bool BatchRing::push(Batch* batch) {
  const int64_t pushed = pushed_.load(std::memory_order_relaxed);
  const auto capacity = static_cast<int64_t>(slots_.size());
  if (pushed - popped_.load(std::memory_order_acquire) == capacity) return false;
  std::swap(slots_[pushed % capacity], *batch);
  pushed_.store(pushed + 1, std::memory_order_release);
  wake();
  return true;
}

bool BatchRing::pop(Batch* batch) {
  const int64_t popped = popped_.load(std::memory_order_relaxed);
  if (pushed_.load(std::memory_order_acquire) == popped) return false;
  std::swap(slots_[popped % static_cast<int64_t>(slots_.size())], *batch);
  popped_.store(popped + 1, std::memory_order_release);
  return true;
}

void BatchRing::close() {
  closed_.store(true, std::memory_order_release);
  wake();
}

bool BatchRing::closed() const { return closed_.load(std::memory_order_acquire); }

void BatchRing::wake() {
  // Full (EAGAIN) means readable already, which is all that is wanted.
  (void)!eventfd_write(fd_, 1);
}

bool BatchRing::wait(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  constexpr int64_t kPollMaxMs = 60'000;
  const auto timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, kPollMaxMs));
  pollfd poller{fd_, POLLIN, 0};
  if (poll(&poller, 1, timeout) <= 0) return std::chrono::steady_clock::now() < deadline;
  eventfd_t count = 0;
  (void)!eventfd_read(fd_, &count);
  return true;
}

namespace {

int64_t passes_of(const PrefetchOptions& options) {
  return static_cast<int64_t>(options.started.size()) + options.epochs;
}

/// How a pass is read.
ReadOptions options_of(const PrefetchOptions& options, int64_t pass) {
  ReadOptions read = options.read;
  const auto started = static_cast<int64_t>(options.started.size());
  if (pass >= started) {
    read.epoch += pass - started;
    return read;
  }
  const StartedPass& one = options.started[static_cast<size_t>(pass)];
  read.part = one.part;
  read.epoch = one.epoch;
  read.rows_before = one.rows_before;
  return read;
}

}  // namespace

PrefetchingReader::PrefetchingReader(DataSpec spec, const PrefetchOptions& options,
                                     std::shared_ptr<std::atomic<bool>> stopped)
    : spec_(std::move(spec)),
      options_(options),
      ready_(std::make_unique<BatchRing>(options.batches_ahead)),
      // Room for every batch that can be out of use, so that giving one back never fails.
      spare_(std::make_unique<BatchRing>(options.batches_ahead + 2)),
      stopped_(stopped != nullptr ? std::move(stopped)
                                  : std::make_shared<std::atomic<bool>>(false)) {
  options_.read.stop = stopped_.get();
}

Result<std::unique_ptr<PrefetchingReader>> PrefetchingReader::open(
    const DataSpec& spec, const PrefetchOptions& options,
    std::shared_ptr<std::atomic<bool>> stopped) {
  constexpr int64_t kAheadMax = 1 << 20;
  if (options.batches_ahead < 1 || options.batches_ahead > kAheadMax) {
    return base::invalid_argument("batches_ahead is {}; it must be from 1 to {}",
                                  options.batches_ahead, kAheadMax);
  }
  if (options.epochs < 0) {
    return base::invalid_argument("epochs is {}; it must not be negative", options.epochs);
  }
  auto self =
      std::unique_ptr<PrefetchingReader>(new PrefetchingReader(spec, options, std::move(stopped)));
  SR_ASSIGN_OR_RETURN(auto reader, Reader::open(self->spec_, options_of(self->options_, 0)));
  self->thread_ = std::thread(
      [raw = self.get(), first = std::move(reader)]() mutable { raw->read_all(std::move(first)); });
  return self;
}

PrefetchingReader::~PrefetchingReader() {
  stop();
  if (thread_.joinable()) thread_.join();
}

void PrefetchingReader::stop() {
  stopped_->store(true, std::memory_order_relaxed);
  spare_->wake();
  ready_->wake();
}

int PrefetchingReader::ready_fd() const { return ready_->fd(); }

Result<bool> PrefetchingReader::next(Batch* batch, Deadline deadline) {
  while (true) {
    if (stopped_->load(std::memory_order_relaxed)) return base::cancelled("reading was stopped");
    // In this order: a batch pushed before the close is seen after seeing the close.
    const bool closed = ready_->closed();
    Batch old = std::move(*batch);
    if (ready_->pop(batch)) {
      // The slot now holds an empty batch; the old one goes back for its memory. It also tells the
      // reading thread that there is room.
      spare_->push(&old);
      spare_->wake();
      count(batch);
      return true;
    }
    *batch = std::move(old);
    if (closed) {
      SR_RETURN_IF_ERROR(error_);
      Batch end;
      end.stats = before_;
      end.stats.progress = 1;
      end.pass = pass_;
      end.pass_rows = pass_rows_;
      count(&end);
      return false;
    }
    if (!ready_->wait(deadline)) {
      return base::deadline_exceeded(
          "no batch was read in time; {} rows had been given out ({:.1f} % of the data)",
          stats_.rows_read, 100 * stats_.progress);
    }
  }
}

/// Notes where the consumer is, and has the batch say it as of what it was opened for.
void PrefetchingReader::count(Batch* batch) {
  pass_ = batch->pass;
  pass_rows_ = batch->pass_rows;
  batch->pass -= pass_before_;
  ReadStats& stats = batch->stats;
  stats.rows_read -= stats_before_.rows_read;
  stats.rows_before -= stats_before_.rows_before;
  stats.rows_skipped -= stats_before_.rows_skipped;
  stats.bytes_read -= stats_before_.bytes_read;
  const auto passes = static_cast<double>(passes_of(options_));
  const auto before = static_cast<double>(pass_before_);
  stats.progress = (stats.progress * passes - before) / (passes - before);
  if (stats.rows_skipped == 0) stats.first_skipped.clear();
  stats_ = stats;
}

bool PrefetchingReader::go_on_as(const DataSpec& spec, const PrefetchOptions& options) {
  const int64_t left = passes_of(options_) - pass_;
  if (!(spec == spec_) || passes_of(options) != left || left == 0) return false;
  if (options.read.batch_size != options_.read.batch_size ||
      options.read.drop_partial != options_.read.drop_partial) {
    return false;
  }
  for (int64_t i = 0; i < left; ++i) {
    ReadOptions mine = options_of(options_, pass_ + i);
    const ReadOptions wanted = options_of(options, i);
    if (i == 0 && pass_rows_ > 0) mine.rows_before = pass_rows_;
    if (mine.epoch != wanted.epoch || mine.part.index != wanted.part.index ||
        mine.part.count != wanted.part.count || mine.rows_before != wanted.rows_before) {
      return false;
    }
  }
  pass_before_ = pass_;
  stats_before_ = {.rows_read = stats_before_.rows_read + stats_.rows_read,
                   .rows_skipped = stats_before_.rows_skipped + stats_.rows_skipped,
                   .rows_before = stats_before_.rows_before + stats_.rows_before,
                   .bytes_read = stats_before_.bytes_read + stats_.bytes_read,
                   .progress = 0,
                   .first_skipped = ""};
  stats_ = {};
  return true;
}

void PrefetchingReader::read_all(std::unique_ptr<Reader> reader) {
  for (int64_t pass = 0; pass < passes_of(options_) && error_.ok(); ++pass) {
    if (pass > 0) {
      Result<std::unique_ptr<Reader>> opened = Reader::open(spec_, options_of(options_, pass));
      error_ = opened.status();
      if (!error_.ok()) break;
      reader = std::move(opened).value();
    }
    error_ = read_pass(reader.get(), pass);
  }
  ready_->close();
}

Status PrefetchingReader::read_pass(Reader* reader, int64_t pass) {
  Batch batch;
  while (true) {
    spare_->pop(&batch);
    SR_ASSIGN_OR_RETURN(const bool more, reader->next(&batch));
    if (!more) break;
    batch.pass = pass;
    ReadStats& stats = batch.stats;
    // A reader that shuffles is ahead by the rows that it holds.
    if (batch.pass_rows < stats.rows_read) {
      stats.progress *= static_cast<double>(batch.pass_rows) / static_cast<double>(stats.rows_read);
    }
    stats.rows_read += before_.rows_read;
    stats.rows_before += before_.rows_before;
    stats.rows_skipped += before_.rows_skipped;
    stats.bytes_read += before_.bytes_read;
    stats.progress =
        (static_cast<double>(pass) + stats.progress) / static_cast<double>(passes_of(options_));
    if (!before_.first_skipped.empty()) stats.first_skipped = before_.first_skipped;
    while (!ready_->push(&batch)) {
      if (stopped_->load(std::memory_order_relaxed)) return base::cancelled("reading was stopped");
      // Ends by a batch taken, by stop(), or by the destructor of this object.
      spare_->wait(Deadline::max());
    }
  }
  const ReadStats& done = reader->stats();
  before_.rows_read += done.rows_read;
  before_.rows_before += done.rows_before;
  before_.rows_skipped += done.rows_skipped;
  before_.bytes_read += done.bytes_read;
  if (before_.first_skipped.empty()) before_.first_skipped = done.first_skipped;
  return {};
}

}  // namespace sidereal::data
