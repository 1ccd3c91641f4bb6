#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/row_parser.h"

namespace sidereal::data {

/// Cuts one record into fields (RFC 4180: a field may stand in double quotes, with "" for a quote).
/// `fields` point into `record` or, where a quote had to be taken out, into `scratch`; the old
/// contents of both are dropped. kInvalidArgument for a quote that does not close.
Status split_csv(std::string_view record, char delimiter, std::vector<std::string_view>* fields,
                 std::string* scratch);

/// The parser of Format::kCsv. kInvalidArgument for a delimiter that cannot be one, or a column
/// named twice.
Result<std::unique_ptr<RowParser>> make_csv_parser(const DataSpec& spec);

}  // namespace sidereal::data
