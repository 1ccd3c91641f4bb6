#include <array>

#include "sidereal/base/check.h"
#include "sidereal/data/row_parser.h"
#include "tests/fuzz/fuzz.h"

/// Lines of files: the first byte chooses the format, the rest are a header (csv) and rows.
SR_FUZZ_TARGET(rows) {
  namespace data = sidereal::data;
  if (input.empty()) return;
  constexpr std::array<data::Format, 3> kFormats = {data::Format::kCsv, data::Format::kCriteo,
                                                    data::Format::kLibsvm};
  data::DataSpec spec;
  spec.format = kFormats[static_cast<uint8_t>(input[0]) % kFormats.size()];
  spec.label = "label";
  spec.numeric = {"a", "b"};
  const auto parser = data::make_parser(spec);
  SR_CHECK(parser.ok(), "{}", sidereal::base::message_of(parser.status()));
  std::string_view rest = input.substr(1);
  const auto next_line = [&rest] {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    return line;
  };
  if ((*parser)->has_header() && !(*parser)->start_file(next_line()).ok()) return;
  data::Row row;
  while (!rest.empty()) static_cast<void>((*parser)->parse(next_line(), &row).ok());
}
