#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "sidereal/base/status.h"

namespace sidereal::base {

/// What is written as its bytes: numbers and enums.
template <class T>
concept FixedSize = std::is_arithmetic_v<T> || std::is_enum_v<T>;

/// Appends little-endian fields to a string. Value type.
/// Thread: core-local.
class ByteWriter {
 public:
  /// Appends the bytes of an integer, enum or floating-point value, little-endian.
  template <FixedSize T>
  void put(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  /// Appends raw bytes.
  void put_bytes(std::string_view bytes) { out_.append(bytes); }
  /// Appends a u32 length, then the bytes. Longer than 2^32-1 bytes is a bug of the caller.
  void put_string(std::string_view text);

  [[nodiscard]] const std::string& bytes() const { return out_; }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

/// Reads little-endian fields from bytes that may be wrong: each read past the end is kDataLoss.
/// Borrows the bytes. Thread: core-local.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  /// Reads one fixed-size value into `out`.
  template <FixedSize T>
  Status get(T* out) {
    SR_RETURN_IF_ERROR(need(sizeof(T)));
    __builtin_memcpy(out, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return {};
  }
  /// Reads a u32 length of at most `max_bytes`, then that many bytes.
  Status get_string(std::string* out, uint32_t max_bytes);
  /// Reads a u32 count of at most `max`; what holds `count` items of at least `item_bytes` each
  /// must still be there, so a lying count costs no memory.
  Status get_count(uint32_t* out, uint32_t max, size_t item_bytes);
  /// The next `n` bytes, borrowed.
  Result<std::string_view> take(size_t n);

  [[nodiscard]] size_t remaining() const { return bytes_.size() - at_; }

 private:
  Status need(size_t n) const;

  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace sidereal::base
