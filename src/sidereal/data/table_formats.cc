#include "sidereal/data/table_formats.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "sidereal/base/strings.h"
#include "sidereal/data/data_spec.h"

namespace sidereal::data {
namespace {

constexpr std::array<TableFormat, 9> kFormats = {{
    {.name = "csv",
     .endings = ".csv .txt .data",
     .what = "RFC 4180 text, a header line first",
     .is_text = true},
    {.name = "tsv",
     .endings = ".tsv .tab",
     .what = "the same with tabs between columns",
     .is_text = true},
    {.name = "parquet",
     .endings = ".parquet .pq",
     .what = "columns; lists are cells of several values",
     .needs = "pyarrow"},
    {.name = "json_lines",
     .endings = ".jsonl .ndjson",
     .what = "one JSON object a line, keys are columns",
     .needs = "pyarrow"},
    {.name = "arrow",
     .endings = ".arrow .feather .ipc",
     .what = "Arrow's files and streams; Feather 2",
     .needs = "pyarrow"},
    {.name = "orc", .endings = ".orc", .what = "columns, as Parquet", .needs = "pyarrow"},
    {.name = "tfrecord",
     .endings = ".tfrecord .tfrecords",
     .what = "tf.train.Example, features are columns",
     .needs = "pyarrow"},
    {.name = "npz",
     .endings = ".npz",
     .what = "NumPy arrays of equal length; x of two dimensions is x_0, x_1, ...",
     .needs = "pyarrow"},
    {.name = "npy", .endings = ".npy", .what = "one NumPy array of records", .needs = "pyarrow"},
}};

const TableFormat* find(std::string_view name) {
  const auto at = std::find_if(kFormats.begin(), kFormats.end(),
                               [&](const TableFormat& one) { return one.name == name; });
  return at == kFormats.end() ? nullptr : &*at;
}

/// The format that the end of a name says, or null.
const TableFormat* by_ending(std::string_view path) {
  path = path.substr(0, is_remote(path) ? path.find_first_of("?#") : path.npos);
  constexpr std::string_view kPacked = ".gz";
  if (path.ends_with(kPacked)) path.remove_suffix(kPacked.size());
  for (const TableFormat& one : kFormats) {
    for (const std::string& ending : base::split(one.endings, ' ')) {
      if (path.size() <= ending.size()) continue;
      const std::string_view end = path.substr(path.size() - ending.size());
      const auto same = [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) == b;
      };
      if (std::equal(end.begin(), end.end(), ending.begin(), same)) return &one;
    }
  }
  return nullptr;
}

}  // namespace

std::span<const TableFormat> table_formats() { return kFormats; }

bool is_remote(std::string_view path) {
  const size_t at = path.find("://");
  if (at == 0 || at == std::string_view::npos) return false;
  return std::all_of(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(at), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '-' || c == '.';
  });
}

TableFile table_file(const std::string& name) {
  TableFile file;
  const size_t colon = name.find(':');
  const bool has_format = colon != std::string::npos && name.compare(colon, 3, "://") != 0;
  file.format = has_format ? find(std::string_view(name).substr(0, colon)) : nullptr;
  file.path = file.format == nullptr ? name : name.substr(colon + 1);
  if (file.format == nullptr) file.format = by_ending(file.path);
  if (file.format == nullptr) file.format = kFormats.data();
  file.is_fed = !file.format->is_text || is_remote(file.path);
  return file;
}

std::string absolute_name(const std::string& file) {
  const std::string path = table_file(file).path;
  if (is_remote(path)) return file;
  const std::string format = file.substr(0, file.size() - path.size());
  return format + std::filesystem::absolute(path).lexically_normal().string();
}

std::vector<std::string> table_format_names() {
  std::vector<std::string> names;
  for (const TableFormat& one : kFormats) names.emplace_back(one.name);
  return names;
}

Result<std::string> named_as(const std::string& file, std::string_view format) {
  const TableFormat* wanted = find(format);
  if (wanted == nullptr) {
    return base::invalid_argument("no format of tables '{}'; the formats are: {}", format,
                                  base::join(table_format_names(), ", "));
  }
  if (wanted == kFormats.data() || table_file(file).format == wanted) return file;
  return std::string(wanted->name) + ":" + table_file(file).path;
}

Result<std::vector<std::string>> table_files(const std::vector<std::string>& patterns,
                                             std::string_view format) {
  std::vector<std::string> named;
  for (const std::string& pattern : patterns) {
    SR_ASSIGN_OR_RETURN(named.emplace_back(), named_as(pattern, format));
  }
  return expand_globs(named);
}

char delimiter_of(const std::vector<std::string>& files, char delimiter) {
  const bool is_tsv = !files.empty() && table_file(files.front()).format->name == "tsv";
  return is_tsv && delimiter == ',' ? '\t' : delimiter;
}

}  // namespace sidereal::data
