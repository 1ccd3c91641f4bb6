#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::parse {

/// How the fields of a record are told apart. Value type.
struct CsvStyle {
  char delimiter = ',';
  /// A field that begins with a double quote ends with one, and "" in it is a quote (RFC 4180).
  /// False: quotes are bytes like others.
  bool quotes = true;
  /// A quote or a line end in a field without quotes is an error, as RFC 4180 has it.
  bool strict = false;
};

/// Cuts one record into fields. `fields` point into `record` or, where a quote had to be taken out,
/// into `scratch`; the old contents of both are dropped. A record of no bytes is one empty field.
/// kInvalidArgument for a quote that does not close, and for what the style forbids.
/// Thread: any.
Status split_csv(std::string_view record, const CsvStyle& style,
                 std::vector<std::string_view>* fields, std::string* scratch);

}  // namespace sidereal::parse
