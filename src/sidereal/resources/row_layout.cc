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

bool RowLayout::fits(const Tensor& value) const {
  return value.dtype() == DType::kFloat32 && value.shape().rank() > 0 &&
         value.shape().dim(0) == rows_;
}

void RowLayout::add(Tensor* value, Variable::Value* of) {
  const int64_t bytes = Rows::of(*value).width * kFloat;
  columns_.push_back({.value = value,
                      .of = of,
                      .bytes = bytes,
                      .offset = width_,
                      .is_sole = value->buffer()->has_one_holder()});
  width_ += bytes;
}

/// False: it is no table, or there is no memory.
bool RowLayout::allocate() {
  if (columns_.size() < 2) return false;
  stride_ = row_stride(width_ / kFloat) * kFloat;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows_, stride_, &bytes)) return false;
  std::vector<Buffer*> moved;
  for (const Column& column : columns_) {
    if (column.is_sole) moved.push_back(column.value->buffer().get());
  }
  memory_ = Buffer::try_allocate_instead_of(moved, static_cast<size_t>(bytes));
  return memory_ != nullptr;
}

std::optional<RowLayout> RowLayout::plan(std::span<Variable::Value* const> values) {
  Variable::Value& weights = *values[0];
  if (weights.has_layout_) return {};
  weights.has_layout_ = true;
  if (weights.now_.nbytes() <= kSmallBytes) return {};
  RowLayout out(weights.now_);
  for (Variable::Value* const value : values) {
    const bool takes_part = out.fits(value->now_) && !value->is_in_table() &&
                            (value == &weights || !value->has_layout_);
    if (takes_part) {
      out.add(&value->now_, value);
    } else if (value == &weights) {
      return {};
    }
  }
  if (!out.allocate()) return {};
  return out;
}

std::optional<RowLayout> RowLayout::plan(std::span<Tensor* const> values) {
  const Tensor& weights = *values[0];
  if (weights.nbytes() <= kSmallBytes) return {};
  RowLayout out(weights);
  if (!out.fits(weights)) return {};
  for (Tensor* const value : values) {
    if (out.fits(*value)) out.add(value, nullptr);
  }
  if (!out.allocate()) return {};
  return out;
}

bool RowLayout::takes(const Tensor* value) const {
  return std::ranges::any_of(columns_, [value](const Column& one) { return one.value == value; });
}

void RowLayout::move(int64_t begin, int64_t end) const {
  const int64_t piece = std::max<int64_t>(kPieceBytes / stride_, 1);
  for (const Column& column : columns_) {
    const Tensor& value = *column.value;
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
    Tensor& value = *column.value;
    value = Tensor(DType::kFloat32, value.shape(), memory_, static_cast<size_t>(column.offset));
    if (column.of == nullptr) continue;
    column.of->spare_ = Tensor();
    column.of->stride_ = stride_;
    column.of->has_layout_ = true;
  }
}

}  // namespace sidereal::resources
