#include "sidereal/resources/waiters.h"

#include <algorithm>
#include <cstring>

namespace sidereal::resources {

using tensor::Shape;
using tensor::Tensor;

WaitingRoom::~WaitingRoom() = default;

Ticket::~Ticket() {
  if (!done_) room_->withdraw(request_);
}

bool Ticket::poll() {
  done_ = done_ || room_->poll(*request_);
  return done_;
}

namespace {

/// Copies a row-major block of `shape` at `from` into one of `into`, whose extents are not smaller.
void copy_block(const std::byte* from, const Shape& shape, const Shape& into, size_t bytes, int dim,
                std::byte* to) {
  if (dim == shape.rank()) {
    std::memcpy(to, from, bytes);
    return;
  }
  size_t from_step = bytes;
  size_t to_step = bytes;
  for (int i = dim + 1; i < shape.rank(); ++i) {
    from_step *= static_cast<size_t>(shape.dim(i));
    to_step *= static_cast<size_t>(into.dim(i));
  }
  if (from_step == to_step) {
    if (shape.dim(dim) > 0) std::memcpy(to, from, from_step * static_cast<size_t>(shape.dim(dim)));
    return;
  }
  for (int64_t i = 0; i < shape.dim(dim); ++i) {
    copy_block(from + static_cast<size_t>(i) * from_step, shape, into, bytes, dim + 1,
               to + static_cast<size_t>(i) * to_step);
  }
}

}  // namespace

Tensor stack_rows(const std::vector<Tuple>& rows, size_t component, bool pad) {
  const Tensor& first = rows.front()[component];
  Shape row = first.shape();
  for (const Tuple& other : rows) {
    const Shape& shape = other[component].shape();
    SR_CHECK(pad ? shape.rank() == row.rank() : shape == row, "rows of {} and {}", row.to_string(),
             shape.to_string());
    for (int i = 0; i < row.rank(); ++i) row.set_dim(i, std::max(row.dim(i), shape.dim(i)));
  }
  Shape shape{static_cast<int64_t>(rows.size())};
  for (const int64_t extent : row.dims()) shape.append(extent);
  Tensor out = pad ? Tensor::zeros(first.dtype(), shape) : Tensor::empty(first.dtype(), shape);
  const size_t bytes = tensor::size_of(first.dtype());
  const size_t step = static_cast<size_t>(row.num_elements()) * bytes;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Tensor& value = rows[i][component];
    copy_block(value.raw(), value.shape(), row, bytes, 0, out.raw() + i * step);
    out.buffer()->keep_all_of(*value.buffer());
  }
  return out;
}

Tensor copy_row(const Tensor& batch, int64_t row) {
  Shape shape;
  for (int i = 1; i < batch.shape().rank(); ++i) shape.append(batch.shape().dim(i));
  return batch.rows(row, 1).reshaped(shape).clone();
}

}  // namespace sidereal::resources
