#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

/// Defines what is done with one input: SR_FUZZ_TARGET(graph_text) { use(input); }
///
/// The body sees `input`, any bytes. It must return; what is wrong with the input is a Status. A
/// property that does not hold is an SR_CHECK.
/// With libFuzzer it is the program's entry; in tests it is a function by that name.
#ifdef SIDEREAL_FUZZ
#define SR_FUZZ_TARGET(name)                                                \
  static void fuzz_##name(std::string_view input);                          \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    fuzz_##name({reinterpret_cast<const char*>(data), size});               \
    return 0;                                                               \
  }                                                                         \
  static void fuzz_##name(std::string_view input)
#else
#define SR_FUZZ_TARGET(name) void fuzz_##name(std::string_view input)
#endif
