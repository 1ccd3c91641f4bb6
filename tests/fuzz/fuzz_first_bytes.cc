#include <algorithm>
#include <span>

#include "sidereal/base/check.h"
#include "sidereal/security/first_bytes.h"
#include "tests/fuzz/fuzz.h"

/// What an unauthenticated peer says first: the verdict stands once it is given, however the bytes
/// arrive, but for what is good and goes on with garbage, and falls at the latest with the last
/// byte that is looked at.
SR_FUZZ_TARGET(first_bytes) {
  using sidereal::security::FirstBytes;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(input));
  for (const bool tls : {false, true}) {
    FirstBytes verdict = FirstBytes::kTooFew;
    const size_t end = std::min(bytes.size(), sidereal::security::kFirstBytesMax);
    for (size_t n = 0; n <= end; ++n) {
      const FirstBytes now = sidereal::security::judge_first_bytes(bytes.first(n), tls);
      const bool goes_on = verdict == FirstBytes::kGood && now == FirstBytes::kGarbage;
      SR_CHECK(verdict == FirstBytes::kTooFew || now == verdict || goes_on,
               "the verdict changed at {}", n);
      verdict = now;
    }
    SR_CHECK(end < sidereal::security::kFirstBytesMax || verdict != FirstBytes::kTooFew,
             "{} bytes are too few", end);
  }
}
