#include "sidereal/exec/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::exec {

namespace {

/// Sizes of one power of two.
constexpr size_t kStepsLog = 3;
constexpr size_t kSteps = size_t{1} << kStepsLog;
constexpr size_t kSmallestLog = 6;
/// At how many buffers a step may look for each that it takes.
constexpr size_t kLooksPerTake = 8;
/// How many sizes beyond the right one will do: up to twice as many bytes.
constexpr size_t kSizesTried = kSteps + 1;

/// Number of the smallest size of at least `bytes` bytes: 64, 72, 80, ..., 128, 144, 160, ...
size_t size_number(size_t bytes) {
  const size_t last = std::max(bytes, size_t{1} << kSmallestLog) - 1;
  const auto width = static_cast<size_t>(std::bit_width(last));
  const size_t step = last >> (width - 1 - kStepsLog);  // From kSteps to 2 kSteps - 1.
  return (width - kSmallestLog) * kSteps + step - (2 * kSteps - 1);
}

size_t bytes_of_number(size_t number) {
  const size_t at = number + kSteps - 1;
  return (kSteps + at % kSteps + 1) << (kSmallestLog - 1 - kStepsLog + at / kSteps);
}

size_t bytes_of(tensor::DType dtype, const tensor::Shape& shape) {
  return static_cast<size_t>(shape.num_elements()) * tensor::size_of(dtype);
}

}  // namespace

BufferPool::Held* BufferPool::Size::find_free(uint64_t now) {
  // What was made first is warm, if it is not far behind what is held.
  if (std::exchange(round, now) != now && looked <= kLooksPerTake * (kLooksPerTake + taken)) {
    next = looked = taken = 0;
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (next >= buffers.size()) next = looked = taken = 0;
    Held& held = buffers[next++];
    ++looked;
    if (!held.buffer->has_one_holder()) continue;
    ++taken;
    return &held;
  }
  next = looked = taken = 0;
  return nullptr;
}

tensor::Buffer::Ptr BufferPool::acquire(size_t bytes) {
  tensor::Buffer::Ptr buffer = try_acquire(bytes);
  SR_CHECK(buffer != nullptr, "out of memory: {} bytes", bytes);
  return buffer;
}

tensor::Buffer::Ptr BufferPool::try_acquire(size_t bytes) {
  if (bytes > bytes_max_ || bytes_max_ == 0) {
    ++allocations_;
    return tensor::Buffer::try_allocate(bytes);
  }
  const size_t first = size_number(bytes);
  for (size_t i = first; i < std::min(first + kSizesTried, sizes_.size()); ++i) {
    Held* const free = sizes_[i].find_free(round_);
    if (free == nullptr) continue;
    free->was_taken = true;
    free->buffer->take_over();
    return free->buffer;
  }
  ++allocations_;
  // Batches differ a little in size from step to step; an eighth of room avoids a new buffer each.
  const size_t number = size_number(bytes + bytes / 8);
  tensor::Buffer::Ptr made = tensor::Buffer::try_allocate(bytes_of_number(number));
  if (made == nullptr) return nullptr;
  if (bytes_ + made->bytes() > bytes_max_) give_back([](const Held&) { return true; });
  bytes_ += made->bytes();
  if (sizes_.size() <= number) sizes_.resize(number + 1);
  sizes_[number].buffers.push_back({made});
  return made;
}

template <class Which>
void BufferPool::give_back(Which which) {
  for (Size& size : sizes_) {
    std::erase_if(size.buffers, [&](Held& held) {
      if (!held.buffer->has_one_holder() || !which(held)) return false;
      bytes_ -= held.buffer->bytes();
      return true;
    });
  }
}

size_t BufferPool::trim() {
  const size_t before = bytes_;
  give_back([](const Held& held) { return !held.was_taken; });
  for (Size& size : sizes_) {
    for (Held& held : size.buffers) held.was_taken = false;
  }
  return before - bytes_;
}

tensor::Tensor BufferPool::tensor(tensor::DType dtype, const tensor::Shape& shape) {
  if (dtype == tensor::DType::kString) return tensor::Tensor::empty(dtype, shape);
  return {dtype, shape, acquire(bytes_of(dtype, shape))};
}

Result<tensor::Tensor> BufferPool::try_tensor(tensor::DType dtype, const tensor::Shape& shape) {
  if (dtype == tensor::DType::kString) return tensor::Tensor::empty(dtype, shape);
  tensor::Buffer::Ptr buffer = try_acquire(bytes_of(dtype, shape));
  if (buffer == nullptr) {
    return base::resource_exhausted("there is no memory for {}{}", tensor::name_of(dtype),
                                    shape.to_string());
  }
  return tensor::Tensor(dtype, shape, std::move(buffer));
}

}  // namespace sidereal::exec
