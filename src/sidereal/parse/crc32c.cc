#include "sidereal/parse/crc32c.h"

#include <array>
#include <cstring>

#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

namespace sidereal::parse {
namespace {

#ifdef __SSE4_2__

// The processor has an instruction for it.
uint32_t extend(uint32_t crc, std::string_view bytes) {
  uint64_t wide = crc;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    wide = _mm_crc32_u64(wide, word);
    bytes.remove_prefix(sizeof(word));
  }
  crc = static_cast<uint32_t>(wide);
  for (const char c : bytes) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(c));
  return crc;
}

#else

constexpr std::array<uint32_t, 256> make_table() {
  constexpr uint32_t kPolynomial = 0x82F63B78;  // Its bits reversed.
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}

uint32_t extend(uint32_t crc, std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF] ^ crc >> 8;
  return crc;
}

#endif

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t before) { return ~extend(~before, bytes); }

}  // namespace sidereal::parse
