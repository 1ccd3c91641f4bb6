#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cli/arguments.h"
#include "sidereal/data/data_spec.h"

namespace sidereal::cli {

/// What the options of `sidereal train` say of its training data, with its files, and with what is
/// to be known of their numbers (data/statistics.h). Reads headers, and a sample of the rows.
Result<data::DataSpec> data_spec(const TrainArguments& arguments);

/// The files that patterns name, of the format an option says.
Result<std::vector<std::string>> files_of(const std::string& format,
                                          const std::vector<std::string>& patterns);

/// The same kind of data in other files, in their own order; ok only when they can be read.
Result<std::optional<data::DataSpec>> other_files(data::DataSpec spec, const std::string& format,
                                                  const std::vector<std::string>& patterns);

/// "," or "tab" as a character.
Result<char> parse_delimiter(const std::string& text);

}  // namespace sidereal::cli
