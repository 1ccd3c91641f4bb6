#include "tests/fuzz/checkpoint_files.h"
#include "tests/fuzz/fuzz.h"

SR_FUZZ_TARGET(safetensors) {
  const sidereal::fuzz::InputFolder folder;
  folder.write("x", input);
  sidereal::fuzz::read_all(folder, {folder.path("x"), sidereal::ckpt::Format::kSafetensors});
}
