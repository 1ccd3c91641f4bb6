#include "sidereal/data/csv_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "sidereal/data/csv_checks.h"
#include "sidereal/data/numeric_transform.h"
#include "sidereal/data/table_layout.h"
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

class CsvParser final : public TableLayout {
 public:
  using TableLayout::TableLayout;

  Status parse(std::string_view text, Row* row) override {
    begin(row);
    if (std::memchr(text.data(), '"', text.size()) != nullptr) {
      SR_RETURN_IF_ERROR(split_csv(text, {.delimiter = spec_.delimiter}, &fields_, &scratch_));
      if (fields_.size() != roles_.size()) return wrong_count(fields_.size());
      for (size_t i = 0; i < fields_.size(); ++i) SR_RETURN_IF_ERROR(take(i, fields_[i], row));
    } else {
      SR_RETURN_IF_ERROR(parse_unquoted(text, row));
    }
    for (const Cross& cross : crosses_) row->ids[cross.slot] = crossed(cross);
    return {};
  }

  Status parse_columns(const ColumnFrame& frame, int64_t at, Row* row) override {
    begin(row);
    for (const size_t column : used_) {
      const Cells& cells = frame.columns[column].cells;
      if (take_cell(column, cells, at, row)) continue;
      SR_RETURN_IF_ERROR(take(column, cells.text(at, &scratch_), row));
    }
    for (const Cross& cross : crosses_) row->ids[cross.slot] = crossed(cross);
    return {};
  }

 private:
  void begin(Row* row) const {
    row->dense.resize(numeric_.size() + spec_.targets.size());
    row->ids.resize(width_ + sequence_width_ + (spec_.group.empty() ? 0 : 1));
    row->sample_weight = 1;
  }

  /// Takes a cell as the number that it is. False where its text is what counts, or says what is
  /// wrong with it.
  bool take_cell(size_t column, const Cells& cells, int64_t at, Row* row) {
    const Role& role = roles_[column];
    float x = 0;
    switch (role.kind) {
      case Kind::kNumber:
      case Kind::kBuckets: {
        const bool is_missing = cells.is_missing(at);
        return (is_missing || cells.number(at, &x)) && put_number(role, is_missing, x, row);
      }
      case Kind::kCategory: {
        int64_t& id = row->ids[role.slot];
        return spec_.id_space > 0 && cells.integer(at, &id) && id >= 0 && id < spec_.id_space;
      }
      case Kind::kLabel:
        if (!spec_.label_rule.op.empty() || !cells.number(at, &row->label)) return false;
        return !spec_.binary_label || row->label == 0 || row->label == 1;
      case Kind::kTarget: {
        float& target = row->dense[role.slot];
        return cells.number(at, &target) && (!spec_.binary_label || target == 0 || target == 1);
      }
      case Kind::kWeight:
        return cells.number(at, &row->sample_weight) && row->sample_weight >= 0;
      default:
        return false;
    }
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

  // What nearly all cells are stands here: the rest costs a call.
  Status take(size_t column, std::string_view value, Row* row) {
    const Role role = roles_[column];
    if (role.kind == Kind::kCategory) [[likely]] {
      int64_t& out = row->ids[role.slot];
      if (spec_.id_space <= 0) {
        out = category_id(value, role.field, spec_.hash_buckets) + role.shift;
        return {};
      }
      if (parse_integer(value, &out) && out >= 0 && out < spec_.id_space) [[likely]]
        return {};
      return to_id(column, value, role.field, &out);
    }
    return take_other(column, value, row);
  }

  Status take_other(size_t column, std::string_view value, Row* row) {
    switch (roles_[column].kind) {
      case Kind::kNumber:
      case Kind::kBuckets:
        return take_number(column, value, row);
      case Kind::kSpecial:
        return take_category(column, value, row);
      case Kind::kLabel:
        return parse_label_by(spec_.label_rule, value, spec_.binary_label, &row->label);
      case Kind::kWeight:
        return take_weight(column, value, row);
      case Kind::kSequence:
        return take_sequence(column, value, row);
      case Kind::kTarget:
        return base::with_context(
            parse_label(value, spec_.binary_label, false, &row->dense[roles_[column].slot]),
            fmt::format("column '{}'", names_[column]));
      case Kind::kGroup:
        // Not negative, as ids are.
        row->ids.back() = static_cast<int64_t>(base::hash64(value) >> 1);
        return {};
      case Kind::kCategory:
      case Kind::kUnused:
        break;
    }
    return {};
  }

  Status to_id(size_t column, std::string_view value, size_t field, int64_t* out) const {
    if (spec_.id_space <= 0) {
      *out = ids_[field].id(value);
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
    *out = id;
    return {};
  }

  Status take_category(size_t column, std::string_view value, Row* row) {
    const Role& role = roles_[column];
    const Category& category = categories_[role.field];
    const size_t field = role.field;
    if (value.empty()) value = category.missing;
    if (category.crossed >= 0) texts_[static_cast<size_t>(category.crossed)].assign(value);
    int64_t* const out = row->ids.data() + role.slot;
    if (category.separator == 0) return to_id(column, value, field, out);
    size_t count = 0;
    // Nothing is no value; what stands between separators is one, even if empty.
    for (bool more = !value.empty(); more && count < category.length; ++count) {
      const size_t end = value.find(category.separator);
      more = end != std::string_view::npos;
      SR_RETURN_IF_ERROR(to_id(column, trim_blanks(value.substr(0, end)), field, out + count));
      value.remove_prefix(more ? end + 1 : value.size());
    }
    std::fill(out + count, out + category.length, int64_t{-1});
    return {};
  }

  Status take_sequence(size_t column, std::string_view value, Row* row) {
    const Role& role = roles_[column];
    const Sequence& how = spec_.sequences[role.field];
    const SequenceSlots& slots = sequences_[role.field];
    if (value.empty()) value = slots.missing;
    pieces_.clear();
    for (bool more = !value.empty(); more;) {
      const size_t end = value.find(how.separator);
      more = end != std::string_view::npos;
      pieces_.push_back(trim_blanks(value.substr(0, end)));
      value.remove_prefix(more ? end + 1 : value.size());
    }
    const auto room = static_cast<size_t>(how.max_length);
    const size_t count = std::min(pieces_.size(), room);
    const size_t from = how.truncating == "pre" ? pieces_.size() - count : 0;
    int64_t* const out = row->ids.data() + role.slot;
    std::fill(out, out + room, int64_t{-1});
    const size_t at = how.padding == "pre" ? room - count : 0;
    for (size_t i = 0; i < count; ++i) {
      SR_RETURN_IF_ERROR(to_id(column, pieces_[from + i], slots.field, out + at + i));
    }
    return {};
  }

  Status take_number(size_t column, std::string_view value, Row* row) {
    const Role& role = roles_[column];
    const std::string_view text = trim_blanks(value);
    float x = 0;
    if (!text.empty() && !parse_float(text, &x)) {
      return invalid_argument("column '{}' is {}, not a finite number", names_[column],
                              shown(value));
    }
    if (put_number(role, text.empty(), x, row)) return {};
    return invalid_argument("column '{}' is {}, too far from the numbers that its scale is of",
                            names_[column], shown(value));
  }

  /// False of a number that its transform makes infinite.
  bool put_number(const Role& role, bool is_missing, float x, Row* row) {
    if (role.kind == Kind::kNumber) {
      const NumericTransform& by = numbers_[role.slot];
      float& out = row->dense[role.slot];
      out = transformed(is_missing ? by.missing : x, by);
      if (!std::isfinite(out)) [[unlikely]]
        return false;
    }
    if (role.bucketized >= 0) take_bucket(role.bucketized, is_missing, x, row);
    return true;
  }

  void take_bucket(int64_t index, bool is_missing, float x, Row* row) {
    const Buckets& buckets = buckets_[static_cast<size_t>(index)];
    const std::vector<float>& boundaries = spec_.bucketized[index].boundaries;
    if (is_missing && buckets.missing.has_value()) {
      x = *buckets.missing;
      is_missing = false;
    }
    const int64_t bucket =
        is_missing ? static_cast<int64_t>(boundaries.size()) + 1 : bucket_of(x, boundaries);
    const size_t field = categories_.size() + static_cast<size_t>(index);
    row->ids[buckets.slot] = ids_[field].first() + bucket;
    if (buckets.crossed >= 0) {
      texts_[static_cast<size_t>(buckets.crossed)] = std::to_string(bucket);
    }
  }

  Status take_weight(size_t column, std::string_view value, Row* row) {
    const std::string_view text = trim_blanks(value);
    if (parse_float(text, &row->sample_weight) && row->sample_weight >= 0) return {};
    return invalid_argument(
        "column '{}' is {}; the weight of a row is a number that is not "
        "negative",
        names_[column], shown(value));
  }

  int64_t crossed(const Cross& cross) {
    joined_.resize(cross.texts.size());
    for (size_t i = 0; i < cross.texts.size(); ++i) joined_[i] = texts_[cross.texts[i]];
    return ids_[cross.field].crossed(joined_, cross.are_numbers);
  }

  [[nodiscard]] Status wrong_count(size_t count) const {
    return invalid_argument(
        "{} fields where the header has {}; check the delimiter ('{}') and "
        "the row",
        count, roles_.size(),
        spec_.delimiter == '\t' ? std::string("tab") : std::string(1, spec_.delimiter));
  }

  std::vector<std::string> joined_;
  std::vector<std::string_view> pieces_;
  std::vector<std::string_view> fields_;
  std::string scratch_;
};

}  // namespace

Result<std::unique_ptr<RowParser>> make_csv_parser(const DataSpec& spec) {
  SR_RETURN_IF_ERROR(check_csv(spec));
  return std::make_unique<CsvParser>(spec);
}

}  // namespace sidereal::data
