#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "sidereal/sys/network.h"
#include "sidereal/tensor/buffer.h"

namespace sidereal::transport {

/// Memory that the outboxes of a lane take turns to use, so that an idle connection holds none.
/// Thread: core-local.
class ChunkPool {
 public:
  static constexpr size_t kChunkBytes = size_t{64} << 10;

  struct Chunk {
    std::unique_ptr<std::byte[]> data;
    size_t capacity = 0;
    size_t used = 0;
    int segments = 0;  ///< Of an outbox, that point into it.
  };

  /// A chunk with room for `bytes`.
  Chunk* take(size_t bytes);
  void give(Chunk* chunk);

  /// Chunks that outboxes have.
  [[nodiscard]] int taken() const { return taken_; }

 private:
  /// A lane sends what it has made before it makes more, so few are taken at once.
  static constexpr size_t kStockMax = 16;

  std::vector<std::unique_ptr<Chunk>> stock_;
  int taken_ = 0;
};

/// Bytes waiting to be sent, in order: small pieces copied side by side into chunks, large ones
/// referred to where they are. No allocation once warm. Thread: core-local.
class Outbox {
 public:
  /// `pool` is borrowed, and outlives it.
  explicit Outbox(ChunkPool* pool) : pool_(pool) {}
  ~Outbox() { clear(); }
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Room for `bytes` bytes at the end, to be filled by the caller before anything else is done.
  std::byte* append(size_t bytes);
  /// Appends bytes that `hold` keeps alive and nobody changes until they are sent.
  void append_shared(const std::byte* data, size_t bytes, tensor::Buffer::Ptr hold);
  /// Fills `slices` with what comes next; returns how many.
  size_t peek(std::span<sys::ConstIoSlice> slices) const;
  /// The next `bytes` bytes have been sent.
  void consume(size_t bytes);
  /// Drops everything.
  void clear();

  /// Bytes waiting.
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  using Chunk = ChunkPool::Chunk;

  struct Segment {
    const std::byte* data;
    size_t bytes;
    Chunk* chunk;  // or nullptr when shared
    tensor::Buffer::Ptr hold;
  };

  Chunk* chunk_with_room(size_t bytes);
  void drop_front();
  void release(Chunk* chunk);

  ChunkPool* const pool_;
  Chunk* tail_ = nullptr;
  std::vector<Segment> segments_;  // from head_ on
  size_t head_ = 0;
  size_t sent_ = 0;  // bytes of the head segment
  size_t bytes_ = 0;
};

}  // namespace sidereal::transport
