#include "sidereal/sys/shared_ring.h"

#include <algorithm>
#include <cstring>

#include "sidereal/base/check.h"

namespace sidereal::sys {
namespace {

// The other side learns of so many bytes at a time, so that both copy at once.
constexpr uint64_t kPublishBytes = 32 << 10;

SharedHeader* header_of(std::span<std::byte> bytes) {
  return reinterpret_cast<SharedHeader*>(bytes.data());
}

RingControl* control_of(const SharedMemory& memory, int number) {
  return &header_of(memory.bytes())->rings[number];
}

std::span<std::byte> data_of(const SharedMemory& memory, int number) {
  const uint64_t bytes = memory.place().ring_bytes;
  SR_CHECK(is_ring_size(bytes) && memory.bytes().size() == shared_bytes(bytes));
  return memory.bytes().subspan(kRingData + static_cast<uint64_t>(number) * bytes, bytes);
}

uint64_t chunk_of(std::span<std::byte> data) {
  return std::min<uint64_t>(kPublishBytes, data.size() / 4);
}

}  // namespace

void begin_shared(std::span<std::byte> bytes, const SharedPlace& place) {
  SR_CHECK(is_ring_size(place.ring_bytes) && bytes.size() == shared_bytes(place.ring_bytes));
  SharedHeader* const header = header_of(bytes);
  header->magic = kSharedMagic;
  header->key_high = place.key_high;
  header->key_low = place.key_low;
  header->ring_bytes = place.ring_bytes;
}

Status check_shared(std::span<const std::byte> bytes, const SharedPlace& place) {
  if (!is_ring_size(place.ring_bytes) || bytes.size() != shared_bytes(place.ring_bytes)) {
    return base::data_loss("shared memory of {} bytes with rings of {}", bytes.size(),
                           place.ring_bytes);
  }
  uint64_t begin[4];
  std::memcpy(begin, bytes.data(), sizeof(begin));
  if (begin[0] != kSharedMagic || begin[1] != place.key_high || begin[2] != place.key_low ||
      begin[3] != place.ring_bytes) {
    return base::data_loss("the shared memory is not the one that was offered");
  }
  return {};
}

// ---- Writing ---------------------------------------------------------------------------------

RingWriter::RingWriter(const SharedMemory& memory, int number, Bell* bell)
    : control_(control_of(memory, number)), data_(data_of(memory, number)), bell_(bell) {}

Status RingWriter::look() {
  const uint64_t read = control_->read.load(std::memory_order_seq_cst);
  if (read - read_ > written_ - read_) {
    return base::data_loss("it claims to have read up to byte {} of a ring in which {} to {} are",
                           read, read_, written_);
  }
  read_ = read;
  return {};
}

// Sequentially consistent, as are the flag and wait(): either the reader that closes its eyes sees
// the bytes, or its flag is seen here.
void RingWriter::publish() {
  if (published_ == written_) return;
  published_ = written_;
  control_->written.store(written_, std::memory_order_seq_cst);
  if (control_->reader_waits.load(std::memory_order_seq_cst) != 0) {
    // Seen by the reader before the bell is: one that waits anew stays marked as waiting.
    control_->reader_waits.store(0, std::memory_order_release);
    bell_->ring();
  }
}

Result<size_t> RingWriter::write(std::span<const ConstIoSlice> from) {
  const uint64_t chunk = chunk_of(data_);
  size_t total = 0;
  for (const ConstIoSlice& slice : from) {
    for (size_t at = 0; at < slice.bytes;) {
      if (written_ - read_ == data_.size()) SR_RETURN_IF_ERROR(look());
      const uint64_t place = written_ & (data_.size() - 1);
      const size_t n = std::min({slice.bytes - at, data_.size() - (written_ - read_),
                                 data_.size() - place, chunk - (written_ - published_)});
      if (n == 0) {
        publish();
        return total;
      }
      std::memcpy(data_.data() + place, slice.data + at, n);
      written_ += n;
      at += n;
      total += n;
      if (written_ - published_ == chunk) publish();
    }
  }
  publish();
  return total;
}

bool RingWriter::has_room() {
  const uint64_t wanted = data_.size() - data_.size() / 4;
  if (written_ - read_ <= wanted) return true;
  return !look().ok() || written_ - read_ <= wanted;
}

bool RingWriter::wait() {
  control_->writer_waits.store(1, std::memory_order_seq_cst);
  if (!has_room()) return true;
  stop_waiting();
  return false;
}

void RingWriter::stop_waiting() {
  if (control_->writer_waits.load(std::memory_order_relaxed) != 0) {
    control_->writer_waits.store(0, std::memory_order_relaxed);
  }
}

bool RingWriter::is_empty() { return look().ok() && read_ == written_; }

// ---- Reading ---------------------------------------------------------------------------------

RingReader::RingReader(const SharedMemory& memory, int number, Bell* bell)
    : control_(control_of(memory, number)), data_(data_of(memory, number)), bell_(bell) {}

Status RingReader::look() {
  const uint64_t written = control_->written.load(std::memory_order_seq_cst);
  if (written - written_ > data_.size() - (written_ - read_)) {
    return base::data_loss(
        "it claims to have written up to byte {} of a ring of {} bytes whose "
        "bytes up to {} were read",
        written, data_.size(), read_);
  }
  written_ = written;
  return {};
}

// As RingWriter::publish().
void RingReader::publish() {
  if (published_ == read_) return;
  published_ = read_;
  control_->read.store(read_, std::memory_order_seq_cst);
  if (control_->writer_waits.load(std::memory_order_seq_cst) != 0 &&
      written_ - read_ <= data_.size() - data_.size() / 4) {
    control_->writer_waits.store(0, std::memory_order_release);
    bell_->ring();
  }
}

Result<size_t> RingReader::read(std::span<const IoSlice> into) {
  const uint64_t chunk = chunk_of(data_);
  size_t total = 0;
  for (const IoSlice& slice : into) {
    for (size_t at = 0; at < slice.bytes;) {
      if (written_ == read_) SR_RETURN_IF_ERROR(look());
      const uint64_t place = read_ & (data_.size() - 1);
      const size_t n = std::min(
          {slice.bytes - at, written_ - read_, data_.size() - place, chunk - (read_ - published_)});
      if (n == 0) {
        publish();
        return total;
      }
      std::memcpy(slice.data + at, data_.data() + place, n);
      read_ += n;
      at += n;
      total += n;
      if (read_ - published_ == chunk) publish();
    }
  }
  publish();
  return total;
}

bool RingReader::has_bytes() const {
  return read_ != written_ || control_->written.load(std::memory_order_seq_cst) != read_;
}

bool RingReader::wait() {
  control_->reader_waits.store(1, std::memory_order_seq_cst);
  if (!has_bytes()) return true;
  stop_waiting();
  return false;
}

void RingReader::stop_waiting() {
  if (control_->reader_waits.load(std::memory_order_relaxed) != 0) {
    control_->reader_waits.store(0, std::memory_order_relaxed);
  }
}

}  // namespace sidereal::sys
