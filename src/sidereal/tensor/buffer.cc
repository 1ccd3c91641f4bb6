#include "sidereal/tensor/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace sidereal::tensor {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

size_t machine_memory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
}

/// What the buffers from 2 MiB on have, and may have.
struct LargeBuffers {
  std::atomic<size_t> bytes = 0;
  std::atomic<size_t> bytes_max = machine_memory();

  bool take(size_t more) {
    const size_t limit = bytes_max.load(std::memory_order_relaxed);
    const size_t before = bytes.fetch_add(more, std::memory_order_relaxed);
    if (before <= limit && more <= limit - before) return true;
    give_back(more);
    return false;
  }
  void give_back(size_t less) {
    if (less > 0) bytes.fetch_sub(less, std::memory_order_relaxed);
  }
};

LargeBuffers& large_buffers() {
  static LargeBuffers all;
  return all;
}

}  // namespace

OutOfMemory::OutOfMemory(size_t bytes) : text_{} {
  std::snprintf(text_.data(), text_.size(), "there is no memory for %zu bytes", bytes);
}

void Buffer::limit_memory(size_t bytes) {
  large_buffers().bytes_max.store(bytes, std::memory_order_relaxed);
}

Buffer::Buffer(void* data, size_t bytes, std::function<void()> release)
    : data_(static_cast<std::byte*>(data)), bytes_(bytes), release_(std::move(release)) {}

Buffer::~Buffer() {
  large_buffers().give_back(counted_);
  if (release_) release_();
}

void Buffer::unheld() {
  if (home_ == nullptr) {
    delete this;
    return;
  }
  kept_.clear();
  home_->take_back(this);
}

Buffer::Ptr Buffer::again() {
  hold_again();
  return Ptr::adopt(this);
}

Buffer::Ptr Buffer::allocate(size_t bytes) {
  Ptr buffer = try_allocate(bytes);
  if (buffer == nullptr) throw OutOfMemory(bytes);
  return buffer;
}

Buffer::Ptr Buffer::allocate_zeroed(size_t bytes) {
  Ptr buffer = try_allocate_zeroed(bytes);
  if (buffer == nullptr) throw OutOfMemory(bytes);
  return buffer;
}

Buffer::Ptr Buffer::try_allocate(size_t bytes) {
  if (bytes >= kHugePage) return try_allocate_zeroed(bytes);
  const size_t size = round_up(bytes == 0 ? 1 : bytes, kAlignment);
  void* data = std::aligned_alloc(kAlignment, size);
  if (data == nullptr) return nullptr;
  return Ptr::make(data, size, [data] { std::free(data); });
}

Buffer::Ptr Buffer::try_allocate_zeroed(size_t bytes) {
  if (bytes > SIZE_MAX - 2 * kHugePage) return nullptr;
  if (bytes < kHugePage) {
    Ptr buffer = try_allocate(bytes);
    if (buffer != nullptr) __builtin_memset(buffer->data(), 0, buffer->bytes());
    return buffer;
  }
  // Fresh anonymous pages are zero. Over-map by one huge page so that the start can be aligned.
  const size_t size = round_up(bytes, kHugePage);
  const size_t mapped = size + kHugePage;
  if (!large_buffers().take(size)) return nullptr;
  void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    large_buffers().give_back(size);
    return nullptr;
  }
  void* data = reinterpret_cast<void*>(round_up(reinterpret_cast<size_t>(raw), kHugePage));
  madvise(data, size, MADV_HUGEPAGE);  // Advice only: random row reads are 1.3-1.7x faster.
  Ptr buffer = Ptr::make(data, size, [raw, mapped] { munmap(raw, mapped); });
  buffer->has_pages_ = true;
  buffer->counted_ = size;
  return buffer;
}

Buffer::Ptr Buffer::try_allocate_instead_of(std::span<Buffer* const> old, size_t bytes) {
  for (Buffer* const one : old) large_buffers().give_back(one->counted_);
  Ptr made = try_allocate_zeroed(bytes);
  for (Buffer* const one : old) {
    if (made != nullptr) {
      one->counted_ = 0;
    } else {
      large_buffers().bytes.fetch_add(one->counted_, std::memory_order_relaxed);
    }
  }
  return made;
}

size_t Buffer::discard(size_t from, size_t to) {
  if (!has_pages_) return to;
  const size_t begin = round_up(from, kHugePage);
  const size_t end = to / kHugePage * kHugePage;
  if (begin >= end) return from;
  // Advice only: where it is refused, the memory is there until the buffer goes.
  madvise(data_ + begin, end - begin, MADV_DONTNEED);
  return end;
}

void Buffer::keep(std::shared_ptr<const void> held) {
  if (std::find(kept_.begin(), kept_.end(), held) == kept_.end()) kept_.push_back(std::move(held));
}

void Buffer::keep_all_of(const Buffer& other) {
  for (const auto& held : other.kept_) keep(held);
}

Buffer::Ptr Buffer::wrap(void* data, size_t bytes, std::function<void()> release) {
  return Ptr::make(data, bytes, std::move(release));
}

}  // namespace sidereal::tensor
