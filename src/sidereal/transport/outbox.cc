#include "sidereal/transport/outbox.h"

#include <algorithm>
#include <utility>

#include "sidereal/base/check.h"

namespace sidereal::transport {

namespace {

constexpr size_t kSegmentsKept = 64;

}  // namespace

ChunkPool::Chunk* ChunkPool::take(size_t bytes) {
  ++taken_;
  if (bytes <= kChunkBytes && !stock_.empty()) {
    Chunk* const chunk = stock_.back().release();
    stock_.pop_back();
    return chunk;
  }
  auto chunk = std::make_unique<Chunk>();
  chunk->capacity = std::max(bytes, kChunkBytes);
  chunk->data = std::make_unique_for_overwrite<std::byte[]>(chunk->capacity);
  return chunk.release();
}

void ChunkPool::give(Chunk* chunk) {
  --taken_;
  std::unique_ptr<Chunk> owned(chunk);
  // Oversized chunks and those beyond a warm stock go back to the system.
  if (owned->capacity != kChunkBytes || stock_.size() == kStockMax) return;
  owned->used = 0;
  stock_.push_back(std::move(owned));
}

Outbox::Chunk* Outbox::chunk_with_room(size_t bytes) {
  if (tail_ != nullptr && tail_->capacity - tail_->used >= bytes) return tail_;
  Chunk* const full = std::exchange(tail_, nullptr);
  if (full != nullptr && full->segments == 0) pool_->give(full);
  tail_ = pool_->take(bytes);
  return tail_;
}

void Outbox::release(Chunk* chunk) {
  if (chunk == tail_) {
    chunk->used = 0;
  } else {
    pool_->give(chunk);
  }
}

std::byte* Outbox::append(size_t bytes) {
  Chunk* chunk = chunk_with_room(bytes);
  std::byte* at = chunk->data.get() + chunk->used;
  chunk->used += bytes;
  bytes_ += bytes;
  const bool follows = segments_.size() > head_ && segments_.back().chunk == chunk &&
                       segments_.back().data + segments_.back().bytes == at;
  if (follows) {
    segments_.back().bytes += bytes;
  } else {
    segments_.push_back({at, bytes, chunk, nullptr});
    ++chunk->segments;
  }
  return at;
}

void Outbox::append_shared(const std::byte* data, size_t bytes, tensor::Buffer::Ptr hold) {
  if (bytes == 0) return;
  segments_.push_back({data, bytes, nullptr, std::move(hold)});
  bytes_ += bytes;
}

size_t Outbox::peek(std::span<sys::ConstIoSlice> slices) const {
  size_t count = 0;
  size_t skip = sent_;
  for (size_t i = head_; i < segments_.size() && count < slices.size(); ++i) {
    slices[count++] = {segments_[i].data + skip, segments_[i].bytes - skip};
    skip = 0;
  }
  return count;
}

void Outbox::drop_front() {
  Segment& front = segments_[head_];
  front.hold.reset();
  if (front.chunk != nullptr && --front.chunk->segments == 0) release(front.chunk);
  ++head_;
  sent_ = 0;
  if (head_ == segments_.size()) {
    segments_.clear();
    head_ = 0;
  } else if (head_ > 1024 && head_ > segments_.size() / 2) {
    segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }
}

void Outbox::consume(size_t bytes) {
  SR_DCHECK(bytes <= bytes_);
  bytes_ -= bytes;
  while (bytes > 0) {
    const size_t left = segments_[head_].bytes - sent_;
    if (bytes < left) {
      sent_ += bytes;
      return;
    }
    bytes -= left;
    drop_front();
  }
  if (bytes_ > 0) return;
  if (tail_ != nullptr) pool_->give(std::exchange(tail_, nullptr));
  if (segments_.capacity() > kSegmentsKept) segments_ = {};
}

void Outbox::clear() { consume(bytes_); }

}  // namespace sidereal::transport
