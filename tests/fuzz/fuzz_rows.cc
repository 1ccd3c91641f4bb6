#include <array>
#include <cmath>

#include "sidereal/base/check.h"
#include "sidereal/base/strings.h"
#include "sidereal/data/row_parser.h"
#include "tests/fuzz/fuzz.h"

/// Lines of files: the first byte chooses the format, the rest are a header (csv) and rows. From
/// 128 on, columns of csv become more than numbers and hashes.
SR_FUZZ_TARGET(rows) {
  namespace data = sidereal::data;
  if (input.empty()) return;
  constexpr std::array<data::Format, 3> kFormats = {data::Format::kCsv, data::Format::kCriteo,
                                                    data::Format::kLibsvm};
  data::DataSpec spec;
  spec.format = kFormats[static_cast<uint8_t>(input[0]) % kFormats.size()];
  spec.label = "label";
  spec.numeric = {"a", "b"};
  if (static_cast<uint8_t>(input[0]) >= 128) {
    spec.label_rule = {.op = ">=", .value = "4"};
    spec.weight = "w";
    spec.transforms = {{.kind = data::Transform::kLog1pStandard, .offset = 2, .scale = 1e30F},
                       {.kind = data::Transform::kQuantile, .boundaries = {-1, 0, 7}}};
    spec.categorical = {"c", "d"};
    spec.bucketized = {{.column = "a", .boundaries = {1, 2}}, {.column = "e", .boundaries = {0}}};
    spec.multi_hot = {{.column = "d", .separator = '|', .max_length = 3}};
    spec.crosses = {{"c", "a"}, {"e", "c", "a"}};
    spec.defaults = {{"b", "3"}, {"c", "none"}, {"e", "-1"}};
  }
  const auto parser = data::make_parser(spec);
  SR_CHECK(parser.ok(), "{}", sidereal::base::message_of(parser.status()));
  std::string_view rest = input.substr(1);
  const auto next_line = [&rest] {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    return line;
  };
  if ((*parser)->has_header() &&
      !(*parser)->start_file(sidereal::base::split(next_line(), ',')).ok()) {
    return;
  }
  data::Row row;
  const data::Schema schema = (*parser)->schema();
  while (!rest.empty()) {
    if (!(*parser)->parse(next_line(), &row).ok()) continue;
    for (const int64_t id : row.ids) SR_CHECK(id >= -1 && id < schema.rows, "id {}", id);
    for (const float x : row.dense) SR_CHECK(std::isfinite(x), "a number is {}", x);
  }
}
