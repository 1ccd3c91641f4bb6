#include "sidereal/exec/buffer_pool.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>
#include <vector>

namespace sidereal::exec {

using tensor::Buffer;

namespace {

/// Sizes of one power of two.
constexpr size_t kStepsLog = 3;
constexpr size_t kSteps = size_t{1} << kStepsLog;
constexpr size_t kSmallestLog = 6;
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

/// What is free, by size. Thread: the pool's, but for take_back().
class BufferPool::Shelf final : public Buffer::Home {
 public:
  /// A free buffer of one of these sizes; nullptr: there is none.
  Buffer::Ptr take(size_t first, size_t last) {
    owner_.store(base::CountOwner::here(), std::memory_order_relaxed);
    fetch();
    for (size_t number = first; number < std::min(last, sizes_.size()); ++number) {
      Buffer* const buffer = sizes_[number].pop();
      if (buffer != nullptr) return buffer->again();
    }
    return nullptr;
  }
  /// A new buffer is one of this shelf.
  void add(Buffer* buffer, size_t number) {
    if (sizes_.size() <= number) sizes_.resize(number + 1);
    holders_.fetch_add(1, std::memory_order_relaxed);
    bytes_ += buffer->bytes();
    buffer->place = number;
    buffer->set_home(this);
  }
  void take_back(Buffer* buffer) override {
    const void* const here = base::CountOwner::here();
    if (here != nullptr && here == owner_.load(std::memory_order_relaxed) &&
        !closed_.load(std::memory_order_relaxed)) {
      return sizes_[buffer->place].push(buffer);
    }
    // The buffer held the shelf until now.
    holders_.fetch_add(1, std::memory_order_relaxed);
    Buffer* first = elsewhere_.load(std::memory_order_relaxed);
    do {
      buffer->next = first;
    } while (!elsewhere_.compare_exchange_weak(first, buffer, std::memory_order_seq_cst,
                                               std::memory_order_relaxed));
    int64_t dropped = 1;
    if (closed_.load(std::memory_order_seq_cst)) dropped += destroy_elsewhere();
    release(dropped);
  }
  /// Gives back what is free; `unused`: what was free all the time since the last call of this. How
  /// many bytes.
  size_t give_back(bool unused) {
    fetch();
    const size_t before = bytes_;
    int64_t dropped = 0;
    for (Size& size : sizes_) {
      // Those that were not needed are the last ones.
      size_t kept = unused ? size.count - size.fewest : 0;
      Buffer** link = &size.first;
      for (size.count = kept; kept > 0; --kept) link = &(*link)->next;
      for (Buffer* next = std::exchange(*link, nullptr); next != nullptr; ++dropped) {
        bytes_ -= next->bytes();
        delete std::exchange(next, next->next);
      }
      size.fewest = size.count;
    }
    release(dropped);
    return before - bytes_;
  }
  /// The pool is gone.
  void close() {
    closed_.store(true, std::memory_order_seq_cst);
    static_cast<void>(give_back(false));
    // What came between these belongs to whoever sees it first.
    release(1 + destroy_elsewhere());
  }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  /// Free buffers of one size: a stack.
  struct Size {
    Buffer* first = nullptr;
    size_t count = 0;
    size_t fewest = 0;  ///< There were, since what was not needed was given back.

    void push(Buffer* buffer) {
      buffer->next = std::exchange(first, buffer);
      ++count;
    }
    Buffer* pop() {
      if (first == nullptr) return nullptr;
      Buffer* const out = first;
      first = out->next;
      fewest = std::min(fewest, --count);
      return out;
    }
  };

  /// Takes what other threads have let go of.
  void fetch() {
    if (elsewhere_.load(std::memory_order_relaxed) == nullptr) return;
    Buffer* last = elsewhere_.exchange(nullptr, std::memory_order_acquire);
    // The first of them goes first, so that the last is on top here too.
    Buffer* next = nullptr;
    while (last != nullptr) {
      Buffer* const buffer = std::exchange(last, last->next);
      buffer->next = std::exchange(next, buffer);
    }
    while (next != nullptr) {
      Buffer* const buffer = std::exchange(next, next->next);
      sizes_[buffer->place].push(buffer);
    }
  }
  int64_t destroy_elsewhere() {
    int64_t count = 0;
    Buffer* next = elsewhere_.exchange(nullptr, std::memory_order_seq_cst);
    for (; next != nullptr; ++count) delete std::exchange(next, next->next);
    return count;
  }
  void release(int64_t holders) {
    if (holders_.fetch_sub(holders, std::memory_order_acq_rel) == holders) delete this;
  }

  std::vector<Size> sizes_;
  size_t bytes_ = 0;
  std::atomic<const void*> owner_ = nullptr;  // Whose thread takes buffers.
  std::atomic<bool> closed_ = false;
  std::atomic<Buffer*> elsewhere_ = nullptr;  // A stack of what others have let go of.
  std::atomic<int64_t> holders_ = 1;          // The pool and its buffers.
};

BufferPool::BufferPool(size_t bytes_max) : shelf_(new Shelf), bytes_max_(bytes_max) {}
BufferPool::~BufferPool() { shelf_->close(); }

Buffer::Ptr BufferPool::acquire(size_t bytes) {
  Buffer::Ptr buffer = try_acquire(bytes);
  if (buffer == nullptr) throw tensor::OutOfMemory(bytes);
  return buffer;
}

Buffer::Ptr BufferPool::try_acquire(size_t bytes) {
  if (bytes > bytes_max_ || bytes_max_ == 0) {
    ++allocations_;
    return Buffer::try_allocate(bytes);
  }
  const size_t first = size_number(bytes);
  Buffer::Ptr free = shelf_->take(first, first + kSizesTried);
  if (free != nullptr) return free;
  ++allocations_;
  // Batches differ a little in size from step to step; an eighth of room avoids a new buffer each.
  const size_t number = size_number(bytes + bytes / 8);
  Buffer::Ptr made = Buffer::try_allocate(bytes_of_number(number));
  if (made == nullptr) return nullptr;
  if (shelf_->bytes() + made->bytes() > bytes_max_) static_cast<void>(shelf_->give_back(false));
  shelf_->add(made.get(), number);
  return made;
}

size_t BufferPool::trim() { return shelf_->give_back(true); }

tensor::Tensor BufferPool::tensor(tensor::DType dtype, const tensor::Shape& shape) {
  if (dtype == tensor::DType::kString) return tensor::Tensor::empty(dtype, shape);
  return {dtype, shape, acquire(bytes_of(dtype, shape))};
}

Result<tensor::Tensor> BufferPool::try_tensor(tensor::DType dtype, const tensor::Shape& shape) {
  if (dtype == tensor::DType::kString) return tensor::Tensor::empty(dtype, shape);
  Buffer::Ptr buffer = try_acquire(bytes_of(dtype, shape));
  if (buffer == nullptr) {
    return base::resource_exhausted("there is no memory for {}{}", tensor::name_of(dtype),
                                    shape.to_string());
  }
  return tensor::Tensor(dtype, shape, std::move(buffer));
}

}  // namespace sidereal::exec
