#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sidereal/base/status.h"
#include "sidereal/sys/network.h"
#include "sidereal/sys/shared_memory.h"

/// Two rings of bytes in shared memory, one for each direction; layout in docs/formats/wire.md.
/// Whatever the other side writes there is looked at once, and judged before it is used.
namespace sidereal::sys {

inline constexpr uint64_t kRingBytesMin = uint64_t{64} << 10;
inline constexpr uint64_t kRingBytesMax = uint64_t{64} << 20;

/// What both sides of one ring say. A number is changed by one side only, but for `..._waits`,
/// which the other side clears when it rings.
struct RingControl {
  alignas(64) std::atomic<uint64_t> written;       ///< bytes written since the beginning
  alignas(64) std::atomic<uint64_t> read;          ///< bytes read since the beginning
  alignas(64) std::atomic<uint32_t> reader_waits;  ///< for bytes, with its eyes closed
  alignas(64) std::atomic<uint32_t> writer_waits;  ///< for room, with its eyes closed
};
static_assert(sizeof(RingControl) == 256 && std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

/// The beginning of the memory; the bytes of ring 0, then those of ring 1, follow at kRingData.
struct SharedHeader {
  uint64_t magic;
  uint64_t key_high;
  uint64_t key_low;
  uint64_t ring_bytes;
  std::byte zeros[224];
  RingControl rings[2];  ///< 0: from who offered the memory to who found it; 1: back
};
static_assert(sizeof(SharedHeader) == 768);

inline constexpr uint64_t kSharedMagic = 0x474e4952'4c524453;  // "SDRLRING"
inline constexpr uint64_t kRingData = 4096;

/// Bytes of the memory for rings of that size.
constexpr uint64_t shared_bytes(uint64_t ring_bytes) { return kRingData + 2 * ring_bytes; }
/// Whether a ring may have that size: a power of two within the bounds above.
constexpr bool is_ring_size(uint64_t bytes) {
  return bytes >= kRingBytesMin && bytes <= kRingBytesMax && (bytes & (bytes - 1)) == 0;
}

/// Writes the beginning of new memory, all zeros before. `bytes` are shared_bytes() of the place.
void begin_shared(std::span<std::byte> bytes, const SharedPlace& place);
/// Whether the memory is the one that `place` tells of: kDataLoss.
Status check_shared(std::span<const std::byte> bytes, const SharedPlace& place);

/// Wakes the other side. Thread: the ring's.
class Bell {
 public:
  virtual ~Bell() = default;
  virtual void ring() = 0;
};

/// The end of a ring that writes. Thread: one.
class RingWriter {
 public:
  /// `number` of the ring in `memory`, which must outlive this, as must `bell`.
  RingWriter(const SharedMemory& memory, int number, Bell* bell);

  /// Writes a prefix of the slices; returns its bytes, 0 when the ring is full. A reader that
  /// claims what cannot be is kDataLoss.
  Result<size_t> write(std::span<const ConstIoSlice> from);
  /// A quarter of the ring is free, so that writing pays; or the reader lies.
  [[nodiscard]] bool has_room();
  /// Has the reader ring when has_room(); false where it has.
  [[nodiscard]] bool wait();
  void stop_waiting();
  /// Everything was read.
  [[nodiscard]] bool is_empty();
  /// The bytes of the ring.
  [[nodiscard]] std::span<std::byte> data() const { return data_; }

 private:
  Status look();
  void publish();

  RingControl* const control_;
  const std::span<std::byte> data_;
  Bell* const bell_;
  uint64_t written_ = 0;
  uint64_t published_ = 0;
  uint64_t read_ = 0;  // as seen last
};

/// The end of a ring that reads. Thread: one.
class RingReader {
 public:
  /// As RingWriter.
  RingReader(const SharedMemory& memory, int number, Bell* bell);

  /// Reads into the slices in order; returns how many bytes, 0 when the ring is empty. A writer
  /// that claims what cannot be is kDataLoss.
  Result<size_t> read(std::span<const IoSlice> into);
  [[nodiscard]] bool has_bytes() const;
  /// Has the writer ring when has_bytes(); false where it has.
  [[nodiscard]] bool wait();
  void stop_waiting();

 private:
  Status look();
  void publish();

  RingControl* const control_;
  const std::span<std::byte> data_;
  Bell* const bell_;
  uint64_t read_ = 0;
  uint64_t published_ = 0;
  uint64_t written_ = 0;  // as seen last
};

}  // namespace sidereal::sys
