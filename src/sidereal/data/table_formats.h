#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// A way of storing a table of named columns, which data of the format csv may be stored in.
/// The table of them is what help, documentation and readers go by. Value type.
struct TableFormat {
  std::string_view name;
  /// What names of such files end with, with blanks between them; ".gz" may follow.
  std::string_view endings;
  /// Its columns and cells, in a few words.
  std::string_view what;
  /// Python packages that read it; "": none.
  std::string_view needs = "";
  /// Whether it is text that this program reads itself.
  bool is_text = false;
};

/// All of them; "csv" is the first.
std::span<const TableFormat> table_formats();

/// A file of a table as it is named: "day.parquet", "parquet:/data/part-0", "s3://bucket/day.csv".
/// Value type.
struct TableFile {
  const TableFormat* format = nullptr;
  /// Without the format in front of it.
  std::string path;
  /// Whether a feeder reads it: see feeder.h.
  bool is_fed = false;
};
TableFile table_file(const std::string& name);

/// Whether a path names a place that is not in the file systems of this machine: "s3://...".
bool is_remote(std::string_view path);

/// The name of a file from everywhere on its machine, with its format.
std::string absolute_name(const std::string& file);

/// The names of formats, for messages and help.
std::vector<std::string> table_format_names();

/// `file` such that table_file() takes it for one of the format; kInvalidArgument without such one.
/// "csv": as the name of the file says.
Result<std::string> named_as(const std::string& file, std::string_view format);

/// The files that patterns name (expand_globs()), each such that table_file() takes it for one of
/// the format; errors as of named_as() too.
Result<std::vector<std::string>> table_files(const std::vector<std::string>& patterns,
                                             std::string_view format);

/// The character between columns of such files: tabs where tsv files have commas otherwise.
char delimiter_of(const std::vector<std::string>& files, char delimiter);

}  // namespace sidereal::data
