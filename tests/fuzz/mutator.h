#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Defines how libFuzzer changes inputs of a target: SR_FUZZ_MUTATOR { return ...; }
///
/// The body sees `input`, at most how many bytes the result may have in `max`, and `seed`; it
/// returns the changed input, for which it may ask change_bytes(). In tests there is none.
#ifdef SIDEREAL_FUZZ
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max);

namespace sidereal::fuzz {

/// What libFuzzer makes of bytes of which nothing is known.
inline std::string change_bytes(std::string bytes, size_t max) {
  const size_t size = std::min(bytes.size(), max);
  bytes.resize(std::max<size_t>(max, 1));
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), size, bytes.size()));
  return bytes;
}

/// Puts `bytes` where libFuzzer wants them.
inline size_t put(const std::string& bytes, uint8_t* data, size_t max) {
  const size_t size = std::min(bytes.size(), max);
  std::copy_n(bytes.data(), size, reinterpret_cast<char*>(data));
  return size;
}

}  // namespace sidereal::fuzz

#define SR_FUZZ_MUTATOR                                                                    \
  static std::string changed_input(std::string_view input, size_t max, uint32_t seed);     \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max,        \
                                            unsigned seed) {                               \
    return sidereal::fuzz::put(                                                            \
        changed_input({reinterpret_cast<const char*>(data), size}, max, seed), data, max); \
  }                                                                                        \
  static std::string changed_input(std::string_view input, size_t max, uint32_t seed)
#endif
