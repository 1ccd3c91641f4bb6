#pragma once

#include <cstdint>
#include <string_view>

namespace sidereal::parse {

/// Protobuf's wire format (developers.google.com/protocol-buffers/docs/encoding). A reader of our
/// own: protobuf's takes copies of strings, and of the tables of every message.
enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// One field of a message. Borrows.
struct Field {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t varint = 0;
  std::string_view bytes;  ///< Of kBytes, kFixed64 and kFixed32.
};

/// The fields of a message, one by one. Borrows; nothing is read outside of the message.
class WireReader {
 public:
  explicit WireReader(std::string_view message) : at_(message.data()), end_(at_ + message.size()) {}

  [[nodiscard]] bool done() const { return at_ == end_; }
  [[nodiscard]] const char* at() const { return at_; }

  /// False for bytes that are no varint of at most 64 bits.
  bool varint(uint64_t* out) {
    if (at_ < end_ && static_cast<uint8_t>(*at_) < 0x80) [[likely]] {
      *out = static_cast<uint8_t>(*at_++);
      return true;
    }
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ < end_; shift += 7) {
      const auto byte = static_cast<uint8_t>(*at_++);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        *out = value;
        return true;
      }
    }
    return false;
  }

  /// Reads one field; false for what is none, groups included.
  bool next(Field* out) {
    uint64_t tag = 0;
    if (!varint(&tag) || tag >> 35 != 0 || tag >> 3 == 0) return false;
    out->number = static_cast<uint32_t>(tag >> 3);
    out->type = static_cast<WireType>(tag & 7);
    switch (out->type) {
      case WireType::kVarint:
        return varint(&out->varint);
      case WireType::kFixed64:
        return take(8, &out->bytes);
      case WireType::kFixed32:
        return take(4, &out->bytes);
      case WireType::kBytes: {
        uint64_t size = 0;
        return varint(&size) && take(size, &out->bytes);
      }
    }
    return false;
  }

 private:
  bool take(uint64_t size, std::string_view* out) {
    if (size > static_cast<uint64_t>(end_ - at_)) return false;
    *out = {at_, static_cast<size_t>(size)};
    at_ += size;
    return true;
  }

  const char* at_;
  const char* end_;
};

/// Calls `take(field)` for each field of a message. False for bytes that are none, and as soon as
/// `take` says false.
template <class Take>
bool each_field(std::string_view message, Take take) {
  WireReader reader(message);
  Field field;
  while (!reader.done()) {
    if (!reader.next(&field) || !take(field)) return false;
  }
  return true;
}

/// The same with `take(number)` for the numbers of a packed field.
template <class Take>
bool each_varint(std::string_view packed, Take take) {
  WireReader reader(packed);
  uint64_t value = 0;
  while (!reader.done()) {
    if (!reader.varint(&value) || !take(value)) return false;
  }
  return true;
}

}  // namespace sidereal::parse
