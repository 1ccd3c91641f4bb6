#include "sidereal/base/check.h"
#include "sidereal/program/program.h"
#include "tests/fuzz/fuzz.h"

/// There is one way to write each program: bytes that are taken are written again as they were.
SR_FUZZ_TARGET(program) {
  const auto program = sidereal::program::decode(input);
  if (!program.ok()) return;
  SR_CHECK(sidereal::program::encode(*program) == input, "a program has two forms");
  SR_CHECK(!sidereal::program::to_text(*program).empty(), "a program has no text");
}
