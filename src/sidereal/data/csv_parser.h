#pragma once

#include <memory>

#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/row_parser.h"

namespace sidereal::data {

/// The parser of Format::kCsv. kInvalidArgument for a delimiter that cannot be one, or a column
/// named twice.
Result<std::unique_ptr<RowParser>> make_csv_parser(const DataSpec& spec);

}  // namespace sidereal::data
