#include "sidereal/data/csv_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "sidereal/base/printable.h"
#include "sidereal/base/strings.h"
#include "sidereal/parse/csv.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {

using base::invalid_argument;
using parse::parse_float;
using parse::parse_integer;
using parse::shown;
using parse::split_csv;
using parse::trim_blanks;

namespace {

/// Names of columns for a message: a file that is no CSV may have anything in its first line.
std::string column_names(const std::vector<std::string>& names) {
  constexpr size_t kNamesMax = 50;
  constexpr size_t kNameBytesMax = 60;
  std::vector<std::string> shown;
  for (size_t i = 0; i < names.size() && i < kNamesMax; ++i) {
    shown.push_back(base::printable(base::message_text(names[i], kNameBytesMax)));
  }
  std::string out = base::join(shown, ", ");
  if (names.size() > kNamesMax) out += fmt::format(" and {} more", names.size() - kNamesMax);
  return out;
}

class CsvParser final : public RowParser {
 public:
  explicit CsvParser(const DataSpec& spec) : spec_(spec) {
    numeric_ = spec.numeric;
    categorical_ = spec.categorical;
  }

  [[nodiscard]] bool has_header() const override { return true; }

  Status start_file(std::string_view header) override {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (header.starts_with(kByteOrderMark)) header.remove_prefix(kByteOrderMark.size());
    SR_RETURN_IF_ERROR(split_csv(header, {.delimiter = spec_.delimiter}, &fields_, &scratch_));
    std::vector<std::string> found;
    for (const std::string_view name : fields_) found.emplace_back(trim_blanks(name));
    if (!started_ && spec_.categorical.empty()) choose_categorical(found);
    started_ = true;

    roles_.assign(found.size(), Role{});
    SR_RETURN_IF_ERROR(assign(found, spec_.label, Kind::kLabel, 0));
    for (size_t i = 0; i < numeric_.size(); ++i) {
      SR_RETURN_IF_ERROR(assign(found, numeric_[i], Kind::kNumber, i));
    }
    for (size_t i = 0; i < categorical_.size(); ++i) {
      SR_RETURN_IF_ERROR(assign(found, categorical_[i], Kind::kCategory, i));
    }
    names_.clear();
    for (const std::string& name : found) names_.push_back(base::printable(name));
    return {};
  }

  Status parse(std::string_view text, Row* row) override {
    row->dense.resize(numeric_.size());
    row->ids.resize(categorical_.size());
    if (std::memchr(text.data(), '"', text.size()) != nullptr) {
      SR_RETURN_IF_ERROR(split_csv(text, {.delimiter = spec_.delimiter}, &fields_, &scratch_));
      if (fields_.size() != roles_.size()) return wrong_count(fields_.size());
      for (size_t i = 0; i < fields_.size(); ++i) SR_RETURN_IF_ERROR(take(i, fields_[i], row));
      return {};
    }
    return parse_unquoted(text, row);
  }

  [[nodiscard]] Schema schema() const override {
    Schema schema;
    schema.dense_width = static_cast<int64_t>(numeric_.size());
    schema.fields = static_cast<int64_t>(categorical_.size());
    schema.rows = spec_.id_space > 0 ? spec_.id_space : schema.fields * spec_.hash_buckets;
    if (schema.fields == 0) schema.rows = 0;
    schema.numeric = numeric_;
    schema.categorical = categorical_;
    return schema;
  }

 private:
  enum class Kind : uint8_t { kUnused, kLabel, kNumber, kCategory };
  struct Role {
    Kind kind = Kind::kUnused;
    size_t slot = 0;
  };

  // The first file decides; the others must have the same columns, in any order.
  void choose_categorical(const std::vector<std::string>& found) {
    categorical_.clear();
    for (const std::string& name : found) {
      const bool numeric = std::find(numeric_.begin(), numeric_.end(), name) != numeric_.end();
      if (name != spec_.label && !numeric) categorical_.push_back(name);
    }
  }

  Status assign(const std::vector<std::string>& found, const std::string& name, Kind kind,
                size_t slot) {
    const auto at = std::find(found.begin(), found.end(), name);
    if (at == found.end()) {
      return invalid_argument("no column '{}'; the columns are: {}", name, column_names(found));
    }
    if (std::find(at + 1, found.end(), name) != found.end()) {
      return invalid_argument("column '{}' stands in the header twice", base::printable(name));
    }
    roles_[at - found.begin()] = {kind, slot};
    return {};
  }

  Status parse_unquoted(std::string_view text, Row* row) {
    const char* at = text.data();
    const char* const end = at + text.size();
    const char delimiter = spec_.delimiter;
    for (size_t i = 0; i < roles_.size(); ++i) {
      const char* stop = at;
      while (stop < end && *stop != delimiter) ++stop;
      const Status status = take(i, std::string_view(at, stop - at), row);
      const bool last = i + 1 == roles_.size();
      if (!status.ok() || (stop == end) != last) [[unlikely]] {
        const auto count = static_cast<size_t>(std::count(text.begin(), text.end(), delimiter)) + 1;
        return count == roles_.size() ? status : wrong_count(count);
      }
      at = stop + 1;
    }
    return {};
  }

  Status take(size_t column, std::string_view value, Row* row) {
    const Role role = roles_[column];
    if (role.kind == Kind::kCategory) [[likely]] {
      const auto field = static_cast<int64_t>(role.slot);
      if (spec_.id_space <= 0) {
        row->ids[role.slot] = category_id(value, field, spec_.hash_buckets);
        return {};
      }
      int64_t id = 0;
      if (!parse_integer(value, &id) && !parse_integer(trim_blanks(value), &id)) {
        return invalid_argument(
            "column '{}' is {}, not an integer id (ids are read as they stand "
            "because an id space is given)",
            names_[column], shown(value));
      }
      if (id < 0) {
        return invalid_argument("id {} in column '{}' is negative; ids count from 0", id,
                                names_[column]);
      }
      if (id >= spec_.id_space) {
        return invalid_argument("id {} in column '{}' is outside [0, {}); make the id space larger",
                                id, names_[column], spec_.id_space);
      }
      row->ids[role.slot] = id;
      return {};
    }
    if (role.kind == Kind::kLabel) {
      return parse_label(value, spec_.binary_label, false, &row->label);
    }
    if (role.kind == Kind::kUnused) return {};
    const std::string_view number = trim_blanks(value);
    row->dense[role.slot] = 0;
    if (!number.empty() && !parse_float(number, &row->dense[role.slot])) {
      return invalid_argument("column '{}' is {}, not a finite number", names_[column],
                              shown(value));
    }
    return {};
  }

  [[nodiscard]] Status wrong_count(size_t count) const {
    return invalid_argument(
        "{} fields where the header has {}; check the delimiter ('{}') and "
        "the row",
        count, roles_.size(),
        spec_.delimiter == '\t' ? std::string("tab") : std::string(1, spec_.delimiter));
  }

  DataSpec spec_;
  std::vector<std::string> numeric_;
  std::vector<std::string> categorical_;
  std::vector<std::string> names_;  ///< For messages.
  std::vector<Role> roles_;
  bool started_ = false;
  std::vector<std::string_view> fields_;
  std::string scratch_;
};

}  // namespace

Result<std::unique_ptr<RowParser>> make_csv_parser(const DataSpec& spec) {
  const char d = spec.delimiter;
  if (d == '"' || d == '\n' || d == '\r' || d == '\0') {
    return invalid_argument("a delimiter cannot be a quote, a line end or a zero byte");
  }
  if (spec.label.empty()) {
    return invalid_argument("the column of the label is not named; give its name in the header");
  }
  std::set<std::string> seen{spec.label};
  for (const auto* names : {&spec.numeric, &spec.categorical}) {
    for (const std::string& name : *names) {
      if (!seen.insert(name).second) {
        return invalid_argument("column '{}' is named twice (as label, numeric or categorical)",
                                name);
      }
    }
  }
  return std::make_unique<CsvParser>(spec);
}

}  // namespace sidereal::data
