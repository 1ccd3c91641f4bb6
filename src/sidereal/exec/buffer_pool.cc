#include "sidereal/exec/buffer_pool.h"

#include <atomic>

namespace sidereal::exec {

namespace {

/// A new buffer has fewer bytes than this more than were asked for.
constexpr size_t kRounding = 64;

}  // namespace

tensor::Buffer::Ptr BufferPool::acquire(size_t bytes) {
  if (bytes_max_ == 0) {
    ++allocations_;
    return tensor::Buffer::allocate(bytes);
  }
  // Batches differ a little in size from step to step; an eighth of room avoids a new buffer each.
  const size_t wanted = bytes + bytes / 8;
  // From the last one on: it may be free again, and a step that takes many in turn, as for what it
  // sends, finds each at once.
  const size_t count = buffers_.size();
  size_t best = count;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = last_ + i < count ? last_ + i : last_ + i - count;
    const tensor::Buffer::Ptr& held = buffers_[at];
    if (held.use_count() != 1 || held->bytes() < bytes || held->bytes() > 4 * bytes + 4096)
      continue;
    if (best == count || held->bytes() < buffers_[best]->bytes()) best = at;
    if (held->bytes() < wanted + kRounding) break;
  }
  if (best < count) {
    last_ = best;
    // Another thread may have let go of it last: what it did with the bytes comes before.
    std::atomic_thread_fence(std::memory_order_acquire);
    return buffers_[best];
  }
  ++allocations_;
  tensor::Buffer::Ptr made = tensor::Buffer::allocate(wanted);
  if (bytes_ + made->bytes() > bytes_max_) {
    std::erase_if(buffers_, [this](const tensor::Buffer::Ptr& held) {
      if (held.use_count() != 1) return false;
      bytes_ -= held->bytes();
      return true;
    });
  }
  bytes_ += made->bytes();
  last_ = buffers_.size();
  buffers_.push_back(made);
  return made;
}

tensor::Tensor BufferPool::tensor(tensor::DType dtype, const tensor::Shape& shape) {
  if (dtype == tensor::DType::kString) return tensor::Tensor::empty(dtype, shape);
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * tensor::size_of(dtype);
  return {dtype, shape, acquire(bytes)};
}

}  // namespace sidereal::exec
