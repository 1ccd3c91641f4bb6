#include "sidereal/security/first_bytes.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace sidereal::security {

namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
static_assert(kPreface.size() == kFirstBytesMax);

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
  return n < kPreface.size() ? FirstBytes::kTooFew : FirstBytes::kGood;
}

}  // namespace sidereal::security
