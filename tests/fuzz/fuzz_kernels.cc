#include <algorithm>

#include "sidereal/base/hash.h"
#include "sidereal/exec/kernel.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/one_op.h"

/// Any op on any inputs runs, waits or is refused. The input is the name of an op, a line's end,
/// and what is decided of the rest; a name that is none stands for one.
SR_FUZZ_TARGET(kernels) {
  using namespace sidereal;
  static fuzz::OpRunner& runner = *new fuzz::OpRunner;
  static const std::vector<std::string>& names = *new std::vector(runner.kernels().names());
  const size_t end = std::min(input.find('\n'), input.size());
  const std::string_view name = input.substr(0, end);
  const ir::OpSchema* schema = runner.ops().find(name);
  if (schema == nullptr || runner.kernels().find(name) == nullptr) {
    schema = runner.ops().find(names[base::hash64(name) % names.size()]);
  }
  // Print writes what it is given to the log.
  if (schema == nullptr || schema->name == "Print") return;
  fuzz::Choices choices(input.substr(std::min(end + 1, input.size())));
  static_cast<void>(runner.run(fuzz::make_one_op(*schema, choices)));
}
