#include "sidereal/resources/snapshot.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sidereal/resources/change_log.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::resources {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// Of the rows of a bucket, together: what is read at once mostly.
constexpr int64_t kBucketBytes = int64_t{1} << 20;
/// Memory that a bucket takes at once, and all of them together: in pages of the machine that are
/// large, as it takes microseconds to get a small one.
constexpr size_t kChunkBytes = size_t{16} << 10;
constexpr size_t kMemoryBytes = size_t{8} << 20;
/// Rows whose memory is asked for before it is needed.
constexpr size_t kAhead = 12;

}  // namespace

Rows Rows::of(const Tensor& value) {
  Rows out{.at = value.raw(), .count = 1, .width = value.num_elements()};
  if (value.shape().rank() > 0) {
    out.count = value.shape().dim(0);
    out.width = out.count == 0 ? 0 : value.num_elements() / out.count;
  }
  out.stride = out.width * static_cast<int64_t>(tensor::size_of(value.dtype()));
  return out;
}

Rows Rows::joined(size_t size) const {
  const int64_t row = width * static_cast<int64_t>(size);
  if (count != 0 && row != stride) return *this;
  return {.at = at, .count = 1, .width = count * width, .stride = count * row};
}

int64_t RowSet::count() const {
  int64_t out = 0;
  for (const uint64_t word : words_) out += std::popcount(word);
  return out;
}

int64_t RowSet::next(int64_t row) const {
  if (row >= rows_) return rows_;
  size_t at = word_of(row);
  uint64_t word = words_[at] & ~(bit_of(row) - 1);
  while (word == 0) {
    if (++at == words_.size()) return rows_;
    word = words_[at];
  }
  return static_cast<int64_t>(at) * kBits + std::countr_zero(word);
}

Snapshot::Snapshot(DType dtype, Shape shape, std::optional<RowSet> only)
    : dtype_(dtype), shape_(std::move(shape)), only_(std::move(only)) {
  count_ = shape_.rank() > 0 ? shape_.dim(0) : 1;
  const int64_t width = count_ == 0 ? 0 : shape_.num_elements() / count_;
  row_bytes_ = width * static_cast<int64_t>(tensor::size_of(dtype));
  rows_ = only_.has_value() ? only_->count() : count_;
}

/// False when there is no memory.
bool Snapshot::add_chunk(Bucket* bucket) {
  if (free_chunks_.empty()) {
    tensor::Buffer::Ptr some = tensor::Buffer::try_allocate(std::max(kMemoryBytes, chunk_bytes_));
    if (some == nullptr) return false;
    for (size_t at = 0; at + chunk_bytes_ <= some->bytes(); at += chunk_bytes_) {
      free_chunks_.push_back(some->data() + at);
    }
    memory_.push_back(std::move(some));
  }
  bucket->chunks.push_back(free_chunks_.back());
  free_chunks_.pop_back();
  bucket->at = bucket->chunks.back();
  bucket->end = bucket->at + chunk_bytes_;
  copied_bytes_.fetch_add(static_cast<int64_t>(chunk_bytes_), std::memory_order_relaxed);
  return true;
}

void Snapshot::copy_out(std::span<const int64_t> rows, const Rows& now) {
  if (!failure_.ok() || held_.defined() || whole_.defined() || row_bytes_ == 0) return;
  const auto bytes = static_cast<size_t>(row_bytes_);
  const size_t entry = sizeof(uint32_t) + bytes;
  if (buckets_.empty()) {
    copied_ = RowSet(count_);
    bucket_rows_ = std::max<int64_t>(kBucketBytes / row_bytes_, 1);
    chunk_bytes_ = std::max(kChunkBytes / entry, size_t{1}) * entry;
    buckets_.resize(static_cast<size_t>((count_ + bucket_rows_ - 1) / bucket_rows_));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) {
      const int64_t later = rows[i + kAhead];
      copied_.prefetch(later);
      __builtin_prefetch(now.at + later * now.stride);
    }
    const int64_t row = rows[i];
    if (!wants(row) || copied_.has(row)) continue;
    copied_.add(row);
    Bucket& bucket = buckets_[static_cast<size_t>(row / bucket_rows_)];
    if (bucket.at == bucket.end && !add_chunk(&bucket)) {
      failure_ = base::resource_exhausted(
          "there is no memory for what steps change while the variable is saved");
      return;
    }
    const auto in_bucket = static_cast<uint32_t>(row % bucket_rows_);
    std::memcpy(bucket.at, &in_bucket, sizeof(in_bucket));
    std::memcpy(bucket.at + sizeof(in_bucket), now.at + row * now.stride, bytes);
    bucket.at += entry;
  }
}

/// Calls `put(row, bytes)` for what was copied out of rows [begin, end).
template <class Put>
void Snapshot::copied(int64_t begin, int64_t end, const Put& put) const {
  if (buckets_.empty()) return;
  for (int64_t b = begin / bucket_rows_; b * bucket_rows_ < end; ++b) {
    const Bucket& bucket = buckets_[static_cast<size_t>(b)];
    for (size_t c = 0; c < bucket.chunks.size(); ++c) {
      const std::byte* at = bucket.chunks[c];
      const bool is_last = c + 1 == bucket.chunks.size();
      const std::byte* const chunk_end = is_last ? bucket.at : at + chunk_bytes_;
      for (; at < chunk_end; at += sizeof(uint32_t) + static_cast<size_t>(row_bytes_)) {
        uint32_t in_bucket = 0;
        std::memcpy(&in_bucket, at, sizeof(in_bucket));
        const int64_t row = b * bucket_rows_ + in_bucket;
        if (row >= begin && row < end) put(row, at + sizeof(in_bucket));
      }
    }
  }
}

/// Frees the buckets that end before row `end`, which have been read.
void Snapshot::forget_buckets(int64_t end) {
  if (buckets_.empty()) return;
  const size_t full = end >= count_ ? buckets_.size() : static_cast<size_t>(end / bucket_rows_);
  int64_t bytes = 0;
  for (; forgotten_ < full; ++forgotten_) {
    Bucket& bucket = buckets_[forgotten_];
    bytes += static_cast<int64_t>(bucket.chunks.size() * chunk_bytes_);
    free_chunks_.insert(free_chunks_.end(), bucket.chunks.begin(), bucket.chunks.end());
    bucket = {};
  }
  if (bytes > 0) copied_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

/// Copies the next rows, at most `rows_max`, to `to`; of an increment, which rows they are to
/// `which`. How many.
int64_t Snapshot::read(int64_t rows_max, const Rows& value, std::byte* to, int64_t* which) {
  const Rows from = held_.defined() ? Rows::of(held_) : value;
  const auto bytes = static_cast<size_t>(row_bytes_);
  if (!only_.has_value()) {
    const int64_t begin = next_;
    next_ = std::min(count_, begin + rows_max);
    if (from.stride == row_bytes_) {
      std::memcpy(to, from.at + begin * from.stride, static_cast<size_t>(next_ - begin) * bytes);
    } else {
      std::byte* at = to;
      for (int64_t r = begin; r < next_; ++r, at += row_bytes_) {
        std::memcpy(at, from.at + r * from.stride, bytes);
      }
    }
    copied(begin, next_, [&](int64_t row, const std::byte* was) {
      std::memcpy(to + (row - begin) * row_bytes_, was, bytes);
    });
    forget_buckets(next_);
    return next_ - begin;
  }
  const int64_t begin = next_;
  int64_t done = 0;
  for (next_ = only_->next(begin); done < rows_max && next_ < count_;
       next_ = only_->next(next_ + 1)) {
    std::memcpy(to + done * row_bytes_, from.at + next_ * from.stride, bytes);
    which[done++] = next_;
  }
  copied(begin, std::min(next_, count_), [&](int64_t row, const std::byte* was) {
    const int64_t at = std::lower_bound(which, which + done, row) - which;
    std::memcpy(to + at * row_bytes_, was, bytes);
  });
  forget_buckets(next_);
  return done;
}

void ValueWatch::before_change(std::span<const int64_t> rows, const Rows& now, size_t size) {
  if (tracks_ && !all_changed_) {
    if (changed_.rows() == now.count) {
      for (const int64_t row : rows) changed_.add(row);
    } else {
      all_changed_ = true;
    }
  }
  if (log_ != nullptr) {
    log_->note_rows(source_, rows, now.count, static_cast<size_t>(now.width) * size);
  }
  if (snapshots_.empty()) return;
  for_each_snapshot([&](Snapshot& snapshot) { snapshot.copy_out(rows, now); });
}

void ValueWatch::lose() {
  for_each_snapshot([](Snapshot& snapshot) {
    snapshot.failure_ = base::aborted("it was destroyed while it was saved");
  });
  snapshots_.clear();
  tracks_ = false;
  if (log_ != nullptr) log_->note_gone(source_);
  log_ = nullptr;
}

void ValueWatch::log_to(std::shared_ptr<ChangeLog> log, size_t source) {
  log_ = std::move(log);
  source_ = source;
}

void ValueWatch::log_all() { log_->note_all(source_); }

void ValueWatch::log_made(const NotedChange& made) {
  if (log_ != nullptr) log_->note_made(source_, made);
}

void ValueWatch::track(uint64_t cut, int64_t rows) {
  tracks_ = true;
  all_changed_ = false;
  cut_ = cut;
  changed_ = RowSet(rows);
}

std::optional<RowSet> ValueWatch::changed_since(std::span<const uint64_t> bases,
                                                int64_t rows) const {
  const bool knows = tracks_ && !all_changed_ && changed_.rows() == rows &&
                     std::ranges::find(bases, cut_) != bases.end();
  if (!knows) return std::nullopt;
  return changed_;
}

}  // namespace sidereal::resources
