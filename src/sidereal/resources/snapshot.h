#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::resources {

class ChangeLog;
struct NotedChange;

/// Where the rows of a value are: row r is `width` elements from `at` + r * `stride` on. A scalar
/// is one row of one element. Value type.
struct Rows {
  std::byte* at = nullptr;
  int64_t count = 0;
  int64_t width = 0;
  int64_t stride = 0;  ///< In bytes.

  /// Those of a tensor.
  static Rows of(const tensor::Tensor& value);
  /// All elements as one row, when they follow one another; else the rows as they are. `size`:
  /// bytes of an element.
  [[nodiscard]] Rows joined(size_t size) const;
};

/// Some of the rows of a value, one bit for each. Value type.
class RowSet {
 public:
  explicit RowSet(int64_t rows = 0)
      : rows_(rows), words_(static_cast<size_t>((rows + kBits - 1) / kBits)) {}

  /// Of how many it may have.
  [[nodiscard]] int64_t rows() const { return rows_; }
  void add(int64_t row) { words_[word_of(row)] |= bit_of(row); }
  [[nodiscard]] bool has(int64_t row) const { return (words_[word_of(row)] & bit_of(row)) != 0; }
  /// Has the memory that says whether it has `row` come near.
  void prefetch(int64_t row) const { __builtin_prefetch(&words_[word_of(row)], 1); }
  [[nodiscard]] int64_t count() const;
  /// The first one from `row` on; rows() when there is none.
  [[nodiscard]] int64_t next(int64_t row) const;

 private:
  static constexpr int64_t kBits = 64;
  static size_t word_of(int64_t row) { return static_cast<size_t>(row / kBits); }
  static uint64_t bit_of(int64_t row) { return uint64_t{1} << (row % kBits); }

  int64_t rows_;
  std::vector<uint64_t> words_;
};

/// What a variable was at one instant, read piece by piece while steps go on changing the variable:
/// rows that are about to change are copied out first, so that no second copy of it is needed.
/// Made by Variable::snapshot().
/// Thread: that of the variable's value, but for what says otherwise.
class Snapshot {
 public:
  /// Of a value of `dtype` and `shape` that has changed in `only`; nothing: all of it.
  Snapshot(tensor::DType dtype, tensor::Shape shape, std::optional<RowSet> only);

  /// What does not change. Thread: any.
  [[nodiscard]] tensor::DType dtype() const { return dtype_; }
  [[nodiscard]] const tensor::Shape& shape() const { return shape_; }
  [[nodiscard]] int64_t row_bytes() const { return row_bytes_; }
  /// Whether it has only the rows that have changed since another one.
  [[nodiscard]] bool is_increment() const { return only_.has_value(); }
  /// How many rows it has.
  [[nodiscard]] int64_t rows() const { return rows_; }
  /// The whole value, when nobody need wait for the variable to read it; undefined else.
  [[nodiscard]] const tensor::Tensor& whole() const { return whole_; }
  /// Copies the next rows of whole(), which is not of strings, as Variable::read_on() does. Thread:
  /// one at a time.
  int64_t read_whole(int64_t rows_max, std::byte* to, int64_t* which) {
    return read(rows_max, Rows::of(whole_), to, which);
  }
  /// Bytes that rows take which were copied out and not read yet. Thread: any.
  [[nodiscard]] int64_t copied_bytes() const {
    return copied_bytes_.load(std::memory_order_relaxed);
  }
  /// Which changes of closures it has: ChangesMade::encode().
  [[nodiscard]] const std::string& changes_made() const { return changes_made_; }

 private:
  friend class ValueWatch;
  friend class Variable;

  /// Rows that were copied out of rows that follow one another, in the order of copying: each is
  /// its number among them, uint32, and its bytes.
  struct Bucket {
    std::byte* at = nullptr;  ///< Where the next one goes.
    std::byte* end = nullptr;
    std::vector<std::byte*> chunks = {};
  };

  [[nodiscard]] bool wants(int64_t row) const {
    return row >= next_ && (!only_.has_value() || only_->has(row));
  }
  void copy_out(std::span<const int64_t> rows, const Rows& now);
  template <class Put>
  void copied(int64_t begin, int64_t end, const Put& put) const;
  bool add_chunk(Bucket* bucket);
  void forget_buckets(int64_t end);
  int64_t read(int64_t rows_max, const Rows& now, std::byte* to, int64_t* which);

  const tensor::DType dtype_;
  const tensor::Shape shape_;
  const std::optional<RowSet> only_;
  int64_t row_bytes_ = 0;
  int64_t rows_ = 0;
  int64_t count_ = 0;  // Rows of the value.
  int64_t next_ = 0;   // Rows before it have been read.
  std::string changes_made_;
  tensor::Tensor whole_;
  tensor::Tensor held_;  // Maybe: what the value was, when all of it was about to change.
  RowSet copied_;        // Rows that were copied out.
  int64_t bucket_rows_ = 0;
  size_t chunk_bytes_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<tensor::Buffer::Ptr> memory_;  // Of chunks.
  std::vector<std::byte*> free_chunks_;
  size_t forgotten_ = 0;  // Of them, those before it.
  std::atomic<int64_t> copied_bytes_ = 0;
  Status failure_;  // Why it cannot be read any more.
};

/// What is done before a value changes: for snapshots, to know what has changed since the last
/// one, and for the change log of its lane. Internal to resources. Thread: as the value.
class ValueWatch {
 public:
  /// Rows of a value that has `now`, whose elements have `size` bytes, are going to change.
  void before_change(std::span<const int64_t> rows, const Rows& now, size_t size);
  /// The same of all; `value` gives what the value is, as a tensor that does not change with it.
  template <class Get>
  void before_change_of_all(const Get& value) {
    if (tracks_) all_changed_ = true;
    if (log_ != nullptr) log_all();
    for_each_snapshot([&](Snapshot& snapshot) {
      if (!snapshot.held_.defined()) snapshot.held_ = value();
    });
  }
  /// The value goes.
  void lose();
  void add(std::weak_ptr<Snapshot> snapshot) { snapshots_.push_back(std::move(snapshot)); }

  /// From here on it is known what changes, for a snapshot that says what has changed since `cut`.
  void track(uint64_t cut, int64_t rows);
  /// What has changed since cut `base`; nothing when that is not known.
  [[nodiscard]] std::optional<RowSet> changed_since(std::span<const uint64_t> bases,
                                                    int64_t rows) const;

  /// What changes is noted in `log`, under `source`; nullptr: nowhere.
  void log_to(std::shared_ptr<ChangeLog> log, size_t source);
  [[nodiscard]] const ChangeLog* log() const { return log_.get(); }
  void log_all();
  void log_made(const NotedChange& made);

 private:
  template <class F>
  void for_each_snapshot(const F& call) {
    std::erase_if(snapshots_, [&](const std::weak_ptr<Snapshot>& weak) {
      const std::shared_ptr<Snapshot> snapshot = weak.lock();
      if (snapshot == nullptr) return true;
      call(*snapshot);
      return false;
    });
  }

  std::vector<std::weak_ptr<Snapshot>> snapshots_;
  bool tracks_ = false;
  bool all_changed_ = false;
  uint64_t cut_ = 0;  // Of which `changed_` is what came after.
  RowSet changed_;
  std::shared_ptr<ChangeLog> log_;
  size_t source_ = 0;  // In it.
};

}  // namespace sidereal::resources
