#include "sidereal/exec/buffer_pool.h"

namespace sidereal::exec {

tensor::Buffer::Ptr BufferPool::acquire(size_t bytes) {
  if (bytes_max_ == 0) {
    ++allocations_;
    return tensor::Buffer::allocate(bytes);
  }
  tensor::Buffer::Ptr* best = nullptr;
  for (tensor::Buffer::Ptr& held : buffers_) {
    if (held.use_count() != 1 || held->bytes() < bytes || held->bytes() > 4 * bytes + 4096)
      continue;
    if (best == nullptr || held->bytes() < (*best)->bytes()) best = &held;
  }
  if (best != nullptr) return *best;
  ++allocations_;
  // Batches differ a little in size from step to step; an eighth of room avoids a new buffer each.
  tensor::Buffer::Ptr made = tensor::Buffer::allocate(bytes + bytes / 8);
  if (bytes_ + made->bytes() > bytes_max_) {
    std::erase_if(buffers_, [this](const tensor::Buffer::Ptr& held) {
      if (held.use_count() != 1) return false;
      bytes_ -= held->bytes();
      return true;
    });
  }
  bytes_ += made->bytes();
  buffers_.push_back(made);
  return made;
}

tensor::Tensor BufferPool::tensor(tensor::DType dtype, const tensor::Shape& shape) {
  if (dtype == tensor::DType::kString) return tensor::Tensor::empty(dtype, shape);
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * tensor::size_of(dtype);
  return {dtype, shape, acquire(bytes)};
}

}  // namespace sidereal::exec
