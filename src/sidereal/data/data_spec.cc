#include "sidereal/data/data_spec.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/data/batch_source.h"
#include "sidereal/data/byte_source.h"
#include "sidereal/data/feeder.h"
#include "sidereal/data/synthetic.h"
#include "sidereal/data/table_formats.h"

namespace sidereal::data {

using base::invalid_argument;

namespace {

constexpr std::array<std::string_view, 5> kFormatNames = {"criteo", "csv", "libsvm", "arrays",
                                                          "synthetic"};
constexpr std::array<std::string_view, 2> kBadRowsNames = {"fail", "skip"};
constexpr std::array<std::string_view, 2> kHashNames = {"xxh3", "farmhash"};
constexpr std::array<std::string_view, 7> kTransformNames = {
    "none", "auto", "log1p", "standard", "log1p_standard", "minmax", "quantile"};

/// The value of an enumeration whose names these are, in order.
template <class Enum, size_t count>
std::optional<Enum> value_named(const std::array<std::string_view, count>& names,
                                std::string_view name) {
  const auto* const found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

}  // namespace

std::string_view name_of(Format format) { return kFormatNames[static_cast<size_t>(format)]; }

Result<Format> format_from_name(std::string_view name) {
  if (const auto known = value_named<Format>(kFormatNames, name)) return *known;
  return invalid_argument("no data format '{}'; the formats are: {}", name,
                          fmt::join(kFormatNames, ", "));
}

std::string_view name_of(BadRows bad_rows) { return kBadRowsNames[static_cast<size_t>(bad_rows)]; }

Result<BadRows> bad_rows_from_name(std::string_view name) {
  if (const auto known = value_named<BadRows>(kBadRowsNames, name)) return *known;
  return invalid_argument("bad rows cannot be treated by '{}'; say fail or skip", name);
}

std::string_view name_of(Transform transform) {
  return kTransformNames[static_cast<size_t>(transform)];
}

Result<Transform> transform_from_name(std::string_view name) {
  if (const auto known = value_named<Transform>(kTransformNames, name)) return *known;
  return invalid_argument("no transform '{}'; the transforms are: {}", name,
                          fmt::join(kTransformNames, ", "));
}

std::string_view name_of(Hash hash) { return kHashNames[static_cast<size_t>(hash)]; }

Result<Hash> hash_from_name(std::string_view name) {
  if (const auto known = value_named<Hash>(kHashNames, name)) return *known;
  return invalid_argument("no hash '{}'; the hashes are: {}", name, fmt::join(kHashNames, ", "));
}

Result<Schema> inspect(const DataSpec& spec) {
  if (spec.format == Format::kArrays) return inspect_arrays(spec);
  if (spec.format != Format::kSynthetic) return inspect_text(spec);
  Schema schema;
  schema.dense_width = SyntheticStream::kNumeric;
  schema.fields = SyntheticStream::kFields;
  schema.rows = SyntheticStream(spec.synthetic).id_space();
  for (int i = 1; i <= SyntheticStream::kNumeric; ++i) {
    schema.numeric.push_back(fmt::format("I{}", i));
  }
  for (int i = 1; i <= SyntheticStream::kFields; ++i) {
    schema.categorical.push_back(fmt::format("C{}", i));
  }
  return schema;
}

Result<std::vector<std::string>> expand_globs(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    const TableFile table = table_file(pattern);
    const std::string format = pattern.substr(0, pattern.size() - table.path.size());
    if (is_remote(table.path)) {
      SR_ASSIGN_OR_RETURN(const auto found, fed_list(table.path));
      for (const std::string& file : found) files.push_back(format + file);
      continue;
    }
    // A name that exists is taken as it stands, even with a '[' in it.
    if (file_bytes(pattern).ok()) {
      files.push_back(pattern);
      continue;
    }
    glob_t found{};
    const int rc = glob(table.path.c_str(), 0, nullptr, &found);
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; ++i) {
      files.push_back(format + found.gl_pathv[i]);
    }
    globfree(&found);
    if (rc != 0) {
      if (pattern.find_first_of("*?[") == std::string::npos) return file_bytes(pattern).status();
      return base::not_found("no file matches '{}'; check the path of the data", pattern);
    }
  }
  return files;
}

}  // namespace sidereal::data
