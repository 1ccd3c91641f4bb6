#include <string>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/parse/csv.h"
#include "tests/fuzz/fuzz.h"

/// Records of CSV: the first byte chooses the style. Fields are no longer than the record together,
/// and written in quotes they are read again as they were.
SR_FUZZ_TARGET(csv) {
  namespace parse = sidereal::parse;
  if (input.empty()) return;
  const auto how = static_cast<uint8_t>(input[0]);
  const std::string_view record = input.substr(1);
  const parse::CsvStyle style{
      .delimiter = (how & 2) != 0 ? '\t' : ',', .quotes = (how & 1) != 0, .strict = (how & 4) != 0};
  std::vector<std::string_view> fields;
  std::string scratch;
  if (!parse::split_csv(record, style, &fields, &scratch).ok()) return;
  SR_CHECK(!fields.empty(), "a record has no field");
  size_t bytes = fields.size() - 1;
  for (const std::string_view field : fields) bytes += field.size();
  SR_CHECK(bytes <= record.size(), "{} bytes of fields in {}", bytes, record.size());
  std::string quoted;
  for (const std::string_view field : fields) {
    if (!quoted.empty()) quoted += style.delimiter;
    quoted += '"';
    for (const char c : field) quoted += c == '"' ? "\"\"" : std::string(1, c);
    quoted += '"';
  }
  std::vector<std::string_view> again;
  const parse::CsvStyle strict{.delimiter = style.delimiter, .strict = true};
  std::string other;
  const bool read = parse::split_csv(quoted, strict, &again, &other).ok();
  SR_CHECK(read && again == fields, "{} fields read back otherwise", fields.size());
}
