#include "sidereal/resources/snapshot.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sidereal/tensor/dtype.h"

namespace sidereal::resources {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

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

void Snapshot::copy_out(std::span<const int64_t> rows, const Rows& now) {
  if (held_.defined() || whole_.defined()) return;
  if (pages_.empty()) pages_.resize(static_cast<size_t>((count_ + kPageRows - 1) / kPageRows));
  int64_t copied = 0;
  for (const int64_t row : rows) {
    if (!wants(row)) continue;
    std::unique_ptr<Page>& page = pages_[static_cast<size_t>(row / kPageRows)];
    if (page == nullptr) page = std::make_unique<Page>();
    const auto in_page = static_cast<uint16_t>(row % kPageRows);
    uint64_t& word = page->has[in_page / 64];
    const uint64_t bit = uint64_t{1} << (in_page % 64);
    if ((word & bit) != 0) continue;
    word |= bit;
    page->rows.push_back(in_page);
    const std::byte* const from = now.at + row * now.stride;
    page->bytes.insert(page->bytes.end(), from, from + row_bytes_);
    ++copied;
  }
  copied_bytes_.fetch_add(copied * row_bytes_, std::memory_order_relaxed);
}

/// Calls `put(row, bytes)` for what was copied out of rows [begin, end).
template <class Put>
void Snapshot::copied(int64_t begin, int64_t end, const Put& put) const {
  if (pages_.empty()) return;
  for (int64_t p = begin / kPageRows; p * kPageRows < end; ++p) {
    const Page* const page = pages_[static_cast<size_t>(p)].get();
    if (page == nullptr) continue;
    const std::byte* from = page->bytes.data();
    for (const uint16_t in_page : page->rows) {
      const int64_t row = p * kPageRows + in_page;
      if (row >= begin && row < end) put(row, from);
      from += row_bytes_;
    }
  }
}

/// Frees the pages that end before row `end`, which have been read.
void Snapshot::forget_pages(int64_t end) {
  const size_t full = end >= count_ ? pages_.size() : static_cast<size_t>(end / kPageRows);
  int64_t bytes = 0;
  for (; forgotten_ < full && forgotten_ < pages_.size(); ++forgotten_) {
    std::unique_ptr<Page>& page = pages_[forgotten_];
    if (page == nullptr) continue;
    bytes += static_cast<int64_t>(page->bytes.size());
    page = nullptr;
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
    forget_pages(next_);
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
  forget_pages(next_);
  return done;
}

void ValueWatch::before_change(std::span<const int64_t> rows, const Rows& now) {
  if (tracks_ && !all_changed_) {
    if (changed_.rows() == now.count) {
      for (const int64_t row : rows) changed_.add(row);
    } else {
      all_changed_ = true;
    }
  }
  if (snapshots_.empty()) return;
  for_each_snapshot([&](Snapshot& snapshot) { snapshot.copy_out(rows, now); });
}

void ValueWatch::lose() {
  for_each_snapshot([](Snapshot& snapshot) { snapshot.is_lost_ = true; });
  snapshots_.clear();
  tracks_ = false;
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
