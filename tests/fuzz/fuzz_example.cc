#include <cstdint>
#include <string_view>
#include <vector>

#include "sidereal/parse/example.h"
#include "tests/fuzz/fuzz.h"

/// Bytes of a tf.train.Example, and every feature read as each kind there is.
SR_FUZZ_TARGET(example) {
  namespace parse = sidereal::parse;
  std::vector<parse::NamedFeature> features;
  if (!parse::read_example(input, &features).ok()) return;
  for (const parse::NamedFeature& named : features) {
    std::vector<float> floats;
    std::vector<int64_t> ints;
    std::vector<std::string_view> strings;
    static_cast<void>(parse::append_values(named.feature, &floats).ok());
    static_cast<void>(parse::append_values(named.feature, &ints).ok());
    static_cast<void>(parse::append_values(named.feature, &strings).ok());
  }
}
