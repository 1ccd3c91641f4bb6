#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/statistics.h"

namespace sidereal::data {

/// "rating>=4" or "click" as the label of `spec`.
Status parse_label_option(const std::string& text, DataSpec* spec);

/// Takes what a file says of columns (docs/guide/features.md): TOML, of which only tables, strings,
/// numbers and lists are wanted. Options that were given stay, what both say of one column is
/// kInvalidArgument. `text` is what the file has, `path` its name in errors.
Status take_features_text(std::string_view text, const std::string& path, DataSpec* spec);
/// As take_features_text(), of a file.
Status take_features(const std::string& path, DataSpec* spec);

/// A file that says how the columns would be taken that have these statistics, of `files`, with
/// what is known of each as a comment. `label`: the column of the label; "": the one that is called
/// label, or the last one with two values.
std::string proposed_features(const std::vector<ColumnStatistics>& columns,
                              const std::string& label);

}  // namespace sidereal::data
