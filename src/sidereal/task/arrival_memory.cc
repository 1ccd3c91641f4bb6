#include "sidereal/task/arrival_memory.h"

#include <array>
#include <atomic>
#include <utility>

namespace sidereal::task {

using tensor::Buffer;

namespace {

/// The C library keeps smaller ones (sys::posix::keep_freed_memory).
constexpr size_t kLargeBytes = size_t{2} << 20;
constexpr size_t kFreeBytesMax = size_t{1} << 30;
constexpr size_t kBlocksMax = 16;

/// Free memory, of whoever has taken it off the shelf.
struct Block {
  Buffer::Ptr memory;
  bool unused = false;  ///< Since it was last looked at.
};

}  // namespace

/// Free blocks: each place holds one or none, and changes hands by one exchange.
class ArrivalMemory::Shelf {
 public:
  ~Shelf() {
    for (std::atomic<Block*>& place : places_) delete place.load();
  }

  void put(Block* block) {
    const size_t bytes = block->memory->bytes();
    if (bytes_.fetch_add(bytes) + bytes <= kFreeBytesMax) {
      for (std::atomic<Block*>& place : places_) {
        Block* none = nullptr;
        if (place.compare_exchange_strong(none, block)) return;
      }
    }
    bytes_.fetch_sub(bytes);
    delete block;
  }
  /// One of at least `bytes` bytes, and not of many more; nullptr: there is none.
  Block* take(size_t bytes) {
    for (std::atomic<Block*>& place : places_) {
      Block* const block = take_from(&place);
      if (block == nullptr) continue;
      const size_t has = block->memory->bytes();
      if (has >= bytes && has - bytes <= bytes / 2) return block;
      put(block);
    }
    return nullptr;
  }
  size_t trim() {
    size_t bytes = 0;
    for (std::atomic<Block*>& place : places_) {
      Block* const block = take_from(&place);
      if (block == nullptr) continue;
      if (std::exchange(block->unused, true)) {
        bytes += block->memory->bytes();
        delete block;
      } else {
        put(block);
      }
    }
    return bytes;
  }

 private:
  Block* take_from(std::atomic<Block*>* place) {
    if (place->load(std::memory_order_relaxed) == nullptr) return nullptr;
    Block* const block = place->exchange(nullptr);
    if (block != nullptr) bytes_.fetch_sub(block->memory->bytes());
    return block;
  }

  std::array<std::atomic<Block*>, kBlocksMax> places_ = {};
  std::atomic<size_t> bytes_ = 0;
};

ArrivalMemory::ArrivalMemory() : shelf_(std::make_shared<Shelf>()) {}
ArrivalMemory::~ArrivalMemory() = default;

Buffer::Ptr ArrivalMemory::take(size_t bytes) {
  if (bytes < kLargeBytes) return Buffer::try_allocate(bytes);
  Block* block = shelf_->take(bytes);
  if (block == nullptr) {
    Buffer::Ptr memory = Buffer::try_allocate_zeroed(bytes);
    if (memory == nullptr) return nullptr;
    block = new Block{.memory = std::move(memory)};
  }
  return Buffer::wrap(block->memory->data(), block->memory->bytes(), [shelf = shelf_, block] {
    block->unused = false;
    shelf->put(block);
  });
}

size_t ArrivalMemory::trim() { return shelf_->trim(); }

}  // namespace sidereal::task
