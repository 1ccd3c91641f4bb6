#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/parse/example.h"
#include "tests/fuzz/fuzz.h"

namespace {

/// Reads the values of a feature; there cannot be more of them than it has bytes.
template <class T>
void read_values(const sidereal::parse::Feature& feature) {
  std::vector<T> values;
  static_cast<void>(sidereal::parse::append_values(feature, &values).ok());
  SR_CHECK(values.size() <= feature.message.size(), "{} values of {} bytes", values.size(),
           feature.message.size());
}

}  // namespace

/// A serialized tf.train.Example; names and values are views of the input.
SR_FUZZ_TARGET(example) {
  namespace parse = sidereal::parse;
  std::vector<parse::NamedFeature> features;
  if (!parse::read_example(input, &features).ok()) return;
  for (const parse::NamedFeature& named : features) {
    const bool inside = named.name.empty() ||
                        (named.name.data() >= input.data() &&
                         named.name.data() + named.name.size() <= input.data() + input.size());
    SR_CHECK(inside, "a name of {} bytes lies outside", named.name.size());
    read_values<int64_t>(named.feature);
    read_values<float>(named.feature);
    read_values<std::string_view>(named.feature);
  }
}
