#include "sidereal/resources/row_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sidereal::resources {

using tensor::Buffer;
using tensor::DType;
using tensor::Tensor;

namespace {

/// Floats from one row of a table to the next where `floats` are in use: a multiple of 16, a cache
/// line, or below 16 a power of two.
int64_t row_stride(int64_t floats) {
  if (floats >= 16) return (floats + 15) / 16 * 16;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(floats)));
}

/// Weights of up to this size are in the caches, wherever their slots are; and others read them
/// whole (passes::gather_at_tables), which costs a copy out of a table.
constexpr size_t kSmallBytes = 4096;
/// Bytes of the table that are written before what they were is given back.
constexpr int64_t kPieceBytes = int64_t{8} << 20;
constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

}  // namespace

std::optional<RowLayout> RowLayout::plan(std::span<Variable::Value* const> values) {
  Variable::Value& weights = *values[0];
  if (weights.has_layout_) return {};
  weights.has_layout_ = true;
  if (weights.now_.nbytes() <= kSmallBytes) return {};
  RowLayout out;
  out.rows_ = weights.rows().count;
  int64_t width = 0;
  for (Variable::Value* const value : values) {
    const bool takes_part = value->dtype() == DType::kFloat32 && !value->is_in_table() &&
                            value->shape().rank() > 0 && value->shape().dim(0) == out.rows_ &&
                            (value == &weights || !value->has_layout_);
    if (!takes_part) {
      if (value == &weights) return {};
      continue;
    }
    const Rows rows = value->rows();
    out.columns_.push_back({.value = value,
                            .bytes = rows.width * kFloat,
                            .offset = width * kFloat,
                            .is_sole = value->now_.buffer()->has_one_holder()});
    width += rows.width;
  }
  if (out.columns_.size() < 2) return {};
  out.stride_ = row_stride(width) * kFloat;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(out.rows_, out.stride_, &bytes)) return {};
  std::vector<Buffer*> moved;
  for (const Column& column : out.columns_) {
    if (column.is_sole) moved.push_back(column.value->now_.buffer().get());
  }
  out.memory_ = Buffer::try_allocate_instead_of(moved, static_cast<size_t>(bytes));
  if (out.memory_ == nullptr) return {};
  return out;
}

void RowLayout::move(int64_t begin, int64_t end) const {
  const int64_t piece = std::max<int64_t>(kPieceBytes / stride_, 1);
  for (const Column& column : columns_) {
    const Tensor& value = column.value->now_;
    const int64_t first = value.raw() - value.buffer()->data();
    auto released = static_cast<size_t>(first + begin * column.bytes);
    for (int64_t from = begin; from < end; from += piece) {
      const int64_t to = std::min(from + piece, end);
      for (int64_t r = from; r < to; ++r) {
        std::memcpy(memory_->data() + r * stride_ + column.offset, value.raw() + r * column.bytes,
                    static_cast<size_t>(column.bytes));
      }
      if (!column.is_sole) continue;
      released = value.buffer()->discard(released, static_cast<size_t>(first + to * column.bytes));
    }
  }
}

void RowLayout::finish() {
  for (const Column& column : columns_) {
    Variable::Value& value = *column.value;
    value.now_ =
        Tensor(DType::kFloat32, value.now_.shape(), memory_, static_cast<size_t>(column.offset));
    value.spare_ = Tensor();
    value.stride_ = stride_;
    value.has_layout_ = true;
  }
}

}  // namespace sidereal::resources
