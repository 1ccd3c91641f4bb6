#include "sidereal/security/first_bytes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace sidereal::security {

namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHeaderBytes = 9;
/// Of a peer that has not heard of larger ones (RFC 9113, 4.2).
constexpr size_t kFrameBytesMax = 1 << 14;

constexpr int kHandshakeRecord = 22;
constexpr int kClientHello = 1;
constexpr int kRecordBytesMax = 1 << 14;
constexpr size_t kHelloBytes = 6;  // Type, version (2), length (2), type of the message.

FirstBytes judge_hello(std::span<const std::byte> bytes) {
  const auto at = [bytes](size_t i) { return std::to_integer<int>(bytes[i]); };
  const size_t n = bytes.size();
  if (n > 0 && at(0) != kHandshakeRecord) return FirstBytes::kGarbage;
  if (n > 1 && at(1) != 3) return FirstBytes::kGarbage;
  if (n > 2 && at(2) > 4) return FirstBytes::kGarbage;
  if (n > 4) {
    const int length = at(3) << 8 | at(4);
    if (length < 4 || length > kRecordBytesMax) return FirstBytes::kGarbage;
  }
  if (n < kHelloBytes) return FirstBytes::kTooFew;
  return at(5) == kClientHello ? FirstBytes::kGood : FirstBytes::kGarbage;
}

/// Whether a client may send a frame (RFC 9113, 6).
bool is_frame_good(size_t length, int type, int flags, uint32_t stream) {
  constexpr int kAck = 1;
  const bool odd = stream % 2 == 1;
  if (length > kFrameBytesMax) return false;
  switch (type) {
    case 0:  // DATA
    case 1:  // HEADERS
    case 9:  // CONTINUATION
      return odd;
    case 2:  // PRIORITY
      return length == 5 && odd;
    case 3:  // RST_STREAM
      return length == 4 && odd;
    case 4:  // SETTINGS
      return stream == 0 && length % 6 == 0 && ((flags & kAck) == 0 || length == 0);
    case 5:  // PUSH_PROMISE, which is for servers
      return false;
    case 6:  // PING
      return stream == 0 && length == 8;
    case 7:  // GOAWAY
      return stream == 0 && length >= 8;
    case 8:  // WINDOW_UPDATE
      return length == 4;
    default:
      return true;
  }
}

/// What follows the preface.
FirstBytes judge_frames(std::span<const std::byte> bytes) {
  constexpr int kSettings = 4;
  for (bool is_first = true; bytes.size() >= kFrameHeaderBytes; is_first = false) {
    const auto at = [bytes](size_t i) { return std::to_integer<uint32_t>(bytes[i]); };
    const size_t length = at(0) << 16 | at(1) << 8 | at(2);
    const auto type = static_cast<int>(at(3));
    const auto flags = static_cast<int>(at(4));
    const uint32_t stream = (at(5) & 0x7f) << 24 | at(6) << 16 | at(7) << 8 | at(8);
    if (is_first && (type != kSettings || flags != 0)) return FirstBytes::kGarbage;
    if (!is_frame_good(length, type, flags, stream)) return FirstBytes::kGarbage;
    const size_t frame = kFrameHeaderBytes + length;
    if (frame >= bytes.size()) return FirstBytes::kGood;
    bytes = bytes.subspan(frame);
  }
  return FirstBytes::kGood;
}

}  // namespace

size_t hello_bytes(std::span<const std::byte> bytes) {
  constexpr size_t kHeaderBytes = 5;
  if (bytes.size() < kHeaderBytes) return 0;
  return kHeaderBytes +
         (std::to_integer<size_t>(bytes[3]) << 8 | std::to_integer<size_t>(bytes[4]));
}

FirstBytes judge_first_bytes(std::span<const std::byte> bytes, bool tls) {
  if (tls) return judge_hello(bytes);
  const size_t n = std::min(bytes.size(), kPreface.size());
  if (std::memcmp(bytes.data(), kPreface.data(), n) != 0) return FirstBytes::kGarbage;
  if (bytes.size() < kPreface.size() + kFrameHeaderBytes) return FirstBytes::kTooFew;
  return judge_frames(bytes.subspan(kPreface.size()));
}

}  // namespace sidereal::security
