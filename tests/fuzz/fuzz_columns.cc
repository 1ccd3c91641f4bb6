#include <algorithm>
#include <cmath>
#include <string>

#include "sidereal/base/check.h"
#include "sidereal/data/columns.h"
#include "sidereal/data/row_parser.h"
#include "tests/fuzz/fuzz.h"

/// A frame of a feeder. Cells become rows as those of a table do, whatever the columns are.
SR_FUZZ_TARGET(columns) {
  namespace data = sidereal::data;
  const auto frame = data::read_columns(input);
  if (!frame.ok()) return;
  data::DataSpec spec;
  std::vector<std::string> names;
  for (size_t i = 0; i < frame->columns.size(); ++i) names.push_back(std::to_string(i));
  spec.label = "";
  if (!names.empty()) spec.numeric = {names.front()};
  for (size_t i = 1; i < names.size(); ++i) spec.categorical.push_back(names[i]);
  if (names.size() > 1) {
    spec.multi_hot = {{.column = names[1], .separator = '|', .max_length = 3}};
  }
  const auto parser = data::make_parser(spec);
  SR_CHECK(parser.ok(), "{}", sidereal::base::message_of(parser.status()));
  if (!(*parser)->start_file(names).ok()) return;
  const data::Schema schema = (*parser)->schema();
  data::Row row;
  std::string scratch;
  // Columns whose cells were not asked for have any number of rows.
  constexpr int64_t kRowsMax = 100;
  for (int64_t at = 0; at < std::min(frame->rows, kRowsMax); ++at) {
    for (const data::NamedCells& column : frame->columns) {
      const auto text = column.cells.text(at, &scratch);
      SR_CHECK(!column.cells.is_missing(at) || text.empty(), "a missing cell has a text");
    }
    if (!(*parser)->parse_columns(*frame, at, &row).ok()) continue;
    for (const int64_t id : row.ids) SR_CHECK(id >= -1 && id < schema.rows, "id {}", id);
    for (const float x : row.dense) SR_CHECK(std::isfinite(x), "a number is {}", x);
  }
}
