#pragma once

#include <chrono>
#include <string_view>
#include <vector>

#include "tests/fuzz/call_script.h"
#include "tests/fuzz/mutator.h"

/// Targets whose inputs are scripts.
namespace sidereal::fuzz {

/// For replies of which nobody knows whether they come.
inline constexpr std::chrono::milliseconds kMoment(20);

/// Runs a script against two servers of one cluster (session.proto), which live as long as the
/// process. `moment`: how long something is waited for that may not come.
std::vector<Outcome> run_session_script(std::string_view script, std::chrono::milliseconds moment);

}  // namespace sidereal::fuzz

/// How scripts are changed that call `methods`, an expression. More memory than the limit is not
/// there: requests may ask for all that a machine has. gRPC's threads are no leaks.
#ifdef SIDEREAL_FUZZ
#define SR_FUZZ_SCRIPTS(methods)                                                                   \
  SR_FUZZ_MUTATOR {                                                                                \
    return sidereal::fuzz::change_script(input, max, seed, methods, sidereal::fuzz::change_bytes); \
  }                                                                                                \
  extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* a, size_t a_size, const uint8_t* b,   \
                                              size_t b_size, uint8_t* out, size_t max,             \
                                              unsigned seed) {                                     \
    return sidereal::fuzz::put(                                                                    \
        sidereal::fuzz::cross_scripts({reinterpret_cast<const char*>(a), a_size},                  \
                                      {reinterpret_cast<const char*>(b), b_size}, max, seed),      \
        out, max);                                                                                 \
  }                                                                                                \
  extern "C" const char* __asan_default_options() {                                                \
    return "detect_leaks=0:max_allocation_size_mb=64";                                             \
  }
#else
#define SR_FUZZ_SCRIPTS(methods)
#endif
