#include "sidereal/base/check.h"
#include "sidereal/data/data_spec.h"
#include "tests/fuzz/fuzz.h"

/// What a driver tells a worker of its data: JSON that is taken is written again.
SR_FUZZ_TARGET(data_spec) {
  namespace data = sidereal::data;
  const auto spec = data::spec_from_json(input);
  if (!spec.ok()) return;
  const std::string text = data::to_json(*spec);
  const auto again = data::spec_from_json(text);
  SR_CHECK(again.ok(), "{}", sidereal::base::message_of(again.status()));
  SR_CHECK(data::to_json(*again) == text, "a spec reads back otherwise");
}
