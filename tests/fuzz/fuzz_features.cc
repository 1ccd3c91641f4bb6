#include "sidereal/base/check.h"
#include "sidereal/data/features_file.h"
#include "tests/fuzz/fuzz.h"

/// A file of features, which people write: what is taken travels to workers as it is.
SR_FUZZ_TARGET(features) {
  namespace data = sidereal::data;
  data::DataSpec spec;
  if (!data::take_features_text(input, "features.toml", &spec).ok()) return;
  const std::string text = data::to_json(spec);
  const auto again = data::spec_from_json(text);
  SR_CHECK(again.ok(), "{}", sidereal::base::message_of(again.status()));
  SR_CHECK(data::to_json(*again) == text, "a spec reads back otherwise");
}
